#include "server/ingest/payload/agent_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

constexpr char kName[] = "msprobe-00112233445566778899aabbccddeeff";

class AgentMemoryTest : public testing::Test {
 protected:
  AgentMemoryTest() {
    std::string boot_id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
    hello_.set_boot_id(boot_id);
    hello_.set_shared_file(kName);
    std::ofstream(path_) << "0123456789";
    owner_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  }
  ~AgentMemoryTest() override { close(owner_); }

  std::unique_ptr<AgentMemory> Open() { return AgentMemory::Open(hello_, {"/nowhere", directory_.path()}); }

  ScratchDirectory directory_;
  const std::string path_ = directory_ / kName;
  v1::Hello hello_;
  int owner_ = -1;
};

TEST_F(AgentMemoryTest, ReadsExactlyWhatIsAskedFor) {
  const auto memory = Open();
  ASSERT_NE(memory, nullptr);
  std::string out(4, '\0');
  ASSERT_TRUE(memory->Read(3, 4, out.data()).ok());
  EXPECT_EQ(out, "3456");
}

TEST_F(AgentMemoryTest, AFileThatIsTooShortIsAFailureOfThatReadAlone) {
  const auto memory = Open();
  std::string out(8, '\0');
  absl::Status status = memory->Read(6, 8, out.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("has 4 of 8 bytes at offset 6"));
  EXPECT_FALSE(memory->Read(~uint64_t{0} - 2, 8, out.data()).ok());
  ASSERT_EQ(ftruncate(owner_, 0), 0);
  EXPECT_FALSE(memory->Read(0, 1, out.data()).ok());
  ASSERT_EQ(ftruncate(owner_, 100), 0);
  EXPECT_TRUE(memory->Read(0, 8, out.data()).ok());
}

TEST_F(AgentMemoryTest, OpensNoOtherName) {
  for (const std::string name :
       {"", "msprobe-", "msprobe-00112233445566778899AABBCCDDEEFF", "msprobe-00112233445566778899aabbccddeeff0",
        "../msprobe-00112233445566778899aabbccd", "./sprobe-00112233445566778899aabbccddeeff",
        "other-00112233445566778899aabbccddeeff00", "msprobe-0011223344556677/899aabbccddeeff"}) {
    if (!name.empty() && name.find('/') == std::string::npos) std::ofstream(directory_ / name) << "0123456789";
    hello_.set_shared_file(name);
    EXPECT_EQ(Open(), nullptr) << name;
  }
}

TEST_F(AgentMemoryTest, OpensRegularFilesOnly) {
  const std::string target = directory_ / "target";
  ASSERT_EQ(rename(path_.c_str(), target.c_str()), 0);
  EXPECT_EQ(Open(), nullptr) << "there is none";
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_EQ(Open(), nullptr) << "a link";
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Open(), nullptr) << "a pipe";
}

TEST_F(AgentMemoryTest, OpensNothingOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Open(), nullptr);
}

TEST_F(AgentMemoryTest, OpensNothingForAnotherMachine) {
  hello_.set_boot_id("00000000-0000-0000-0000-000000000000");
  EXPECT_EQ(Open(), nullptr);
  hello_.clear_boot_id();
  EXPECT_EQ(Open(), nullptr);
}

}  // namespace
}  // namespace msprobe::server
