#include "agent/core/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace msprobe::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(EnvironmentTest, ShowsWhatIsOnTheListSortedByName) {
  const char* const environment[] = {"WORLD_SIZE=8",
                                     "HOME=/root",
                                     "NCCL_DEBUG=INFO",
                                     "MASTER_ADDR=node=7",
                                     "PYTHONHASHSEED=0",
                                     "MY_NCCL_DEBUG=INFO",
                                     "NCCL_",
                                     "OMP_NUM_THREADS=",
                                     "RANKS=3",
                                     "HCCL_BUFFSIZE=\xff-64",
                                     nullptr};
  EXPECT_THAT(
      ShownEnvironment(environment),
      ElementsAre(Pair("HCCL_BUFFSIZE", "\xEF\xBF\xBD-64"), Pair("MASTER_ADDR", "node=7"), Pair("NCCL_DEBUG", "INFO"),
                  Pair("OMP_NUM_THREADS", ""), Pair("PYTHONHASHSEED", "0"), Pair("WORLD_SIZE", "8")));
}

TEST(EnvironmentTest, ShowsNoSecret) {
  const char* const environment[] = {"VLLM_API_KEY=x",
                                     "MSPROBE_TOKEN_FILE=x",
                                     "TORCH_SECRET=x",
                                     "HCCL_PASSWORD=x",
                                     "TORCH_HUB_CREDENTIALS=x",
                                     "MSPROBE_TLS_KEY=x",
                                     "VLLM_AUTH=x",
                                     "NCCL_PROXY=http://a:b@host",
                                     "VLLM_ARGS=--token x",
                                     nullptr};
  EXPECT_THAT(ShownEnvironment(environment), IsEmpty());
  EXPECT_THAT(ShownEnvironment(nullptr), IsEmpty());
}

TEST(EnvironmentTest, ASecretInAValueIsSeen) {
  for (const char* value :
       {"http://user@host", "https://h/x?a=1&sig=x", "https://h/x?key=x", "--lr 1 --token x", "--Password=x",
        "run HF_TOKEN=x", "'auth': 'x'", "Authorization: Bearer x", "a\xff secret=x"}) {
    EXPECT_TRUE(HoldsSecret(value)) << value;
  }
  for (const char* value : {"", "Ring", "token auth secret", "--max-tokens 8 --eos_token x", "a:b/token", "--token",
                            "tree=1,ring=2", "http://host:80/x?a=1"}) {
    EXPECT_FALSE(HoldsSecret(value)) << value;
  }
}

TEST(EnvironmentTest, ValuesAndTheirNumberAreBounded) {
  std::vector<std::string> texts;
  for (int i = 1000; i < 1500; ++i) texts.push_back("NCCL_" + std::to_string(i) + "=" + std::string(5000, '\xff'));
  std::vector<const char*> environment;
  for (const std::string& text : texts) environment.push_back(text.c_str());
  environment.push_back(nullptr);
  const auto shown = ShownEnvironment(environment.data());
  ASSERT_EQ(shown.size(), 128u);
  for (const auto& [name, value] : shown) EXPECT_LE(value.size(), 1024u);
}

TEST(EnvironmentTest, DevicesAreCounted) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "devices";
  std::filesystem::remove_all(root);
  for (const char* bus : {"0000:01:00.0", "0000:02:00.0"}) {
    std::filesystem::create_directories(root / "proc/driver/nvidia/gpus" / bus);
    std::ofstream(root / "proc/driver/nvidia/gpus" / bus / "information")
        << "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 120\n";
  }
  std::filesystem::create_directories(root / "dev");
  for (const char* device : {"davinci0", "davinci12", "davinci_manager", "null"}) std::ofstream(root / "dev" / device);
  std::ofstream(root / "proc/cpuinfo")
      << "processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n";
  EXPECT_THAT(MachineDevices(root.string()),
              ElementsAre("2 x Ascend NPU", "2 x NVIDIA H100 80GB HBM3", "2 x AMD EPYC"));
  std::filesystem::remove_all(root);
  EXPECT_THAT(MachineDevices(root.string()), IsEmpty());
}

}  // namespace
}  // namespace msprobe::core
