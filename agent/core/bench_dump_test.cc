#include "agent/core/bench_dump.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BenchDumpTest : public ::testing::Test {
 protected:
  BenchDumpTest() : path_(std::filesystem::temp_directory_path() / Cat("bench-dump-", getpid(), ".json")) {}
  ~BenchDumpTest() override { std::filesystem::remove(path_); }

  absl::StatusOr<BenchDump> Load(const std::string& text) {
    std::ofstream(path_) << text;
    return BenchDump::Load(path_.string());
  }

  const std::filesystem::path path_;
};

std::string Tensor(const std::string& md5) {
  return Cat(R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": NaN, "md5": )", md5, "}");
}

TEST_F(BenchDumpTest, ChecksumsStandInDepthFirstOrder) {
  const absl::StatusOr<BenchDump> dump = Load(
      Cat(R"({"task": "tensor", "data": {"Torch.add.0.forward": {"input_args": [)", Tensor("\"0000000a\""),
          R"(, {"type": "int", "value": 3}, [)", Tensor("null"), R"(]], "input_kwargs": {"out": )", Tensor("\"ffffffff\""),
          R"(}, "output": [)", Tensor("\"00000001\""), R"(], "parameters": {"weight": )", Tensor("\"00000002\""),
          R"(}}, "Torch.add.0.backward": {"input": [)", Tensor("\"3\""), R"(], "output": []}, "Module.a.parameters_grad.0": )",
          R"({"weight": [)", Tensor("\"4\""), "]}}}"));
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->size(), 3);
  const BenchDump::Checksums* forward = dump->Find("Torch.add.0.forward");
  ASSERT_NE(forward, nullptr);
  EXPECT_THAT(forward->input, ElementsAre(10, std::nullopt, 0xffffffff));
  EXPECT_THAT(forward->output, ElementsAre(1));
  EXPECT_THAT(dump->Find("Torch.add.0.backward")->input, ElementsAre(3));
  EXPECT_THAT(dump->Find("Module.a.parameters_grad.0")->input, IsEmpty());
  EXPECT_THAT(dump->Find("Module.a.parameters_grad.0")->output, ElementsAre(4));
  EXPECT_EQ(dump->Find("Torch.add.1.forward"), nullptr);
}

TEST_F(BenchDumpTest, WhatIsNoDumpWithChecksumsIsRefusedByPath) {
  const std::string path = path_.string();
  EXPECT_THAT(std::string(BenchDump::Load(path + "-none").status().message()), HasSubstr(path + "-none"));
  EXPECT_THAT(std::string(Load("{").status().message()), HasSubstr("not JSON"));
  EXPECT_THAT(std::string(Load("[]").status().message()), HasSubstr("no dump.json"));
  EXPECT_THAT(std::string(Load(Cat(R"({"data": {"a": {"output": [)", Tensor("null"), "]}}}")).status().message()),
              HasSubstr("summary_mode md5"));
  EXPECT_TRUE(Load(R"({"data": {}})").ok());
}

}  // namespace
}  // namespace msprobe::core
