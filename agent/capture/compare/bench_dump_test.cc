#include "agent/capture/compare/bench_dump.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BenchDumpTest : public ::testing::Test {
 protected:
  BenchDumpTest() : path_(std::filesystem::temp_directory_path() / core::Cat("bench-dump-", getpid(), ".json")) {}
  ~BenchDumpTest() override { std::filesystem::remove(path_); }

  absl::StatusOr<BenchDump> Load(const std::string& text) {
    std::ofstream(path_) << text;
    return BenchDump::Load(path_.string());
  }

  const std::filesystem::path path_;
};

std::string Tensor(const std::string& md5) {
  return core::Cat(R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": NaN, "md5": )", md5, "}");
}

TEST_F(BenchDumpTest, ChecksumsStandInDepthFirstOrder) {
  const absl::StatusOr<BenchDump> dump = Load(
      core::Cat(R"({"task": "tensor", "data": {"Torch.add.0.forward": {"input_args": [)", Tensor("\"0000000a\""),
                R"(, {"type": "int", "value": 3}, [)", Tensor("null"), R"(]], "input_kwargs": {"out": )",
                Tensor("\"ffffffff\""), R"(}, "output": [)", Tensor("\"00000001\""), R"(], "parameters": {"weight": )",
                Tensor("\"00000002\""), R"(}}, "Torch.add.0.backward": {"input": [)", Tensor("\"3\""),
                R"(], "output": []}, "Module.a.parameters_grad.0": )", R"({"weight": [)", Tensor("\"4\""), "]}}}"));
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->size(), 3);
  const auto checksums = [&](std::string_view record, std::string_view key) {
    return dump->Find(record)->Find(key)->checksums;
  };
  EXPECT_THAT(checksums("Torch.add.0.forward", "input_args"), ElementsAre(10, std::nullopt));
  EXPECT_THAT(checksums("Torch.add.0.forward", "input_kwargs"), ElementsAre(0xffffffff));
  EXPECT_THAT(checksums("Torch.add.0.forward", "output"), ElementsAre(1));
  EXPECT_EQ(dump->Find("Torch.add.0.forward")->Find("parameters"), nullptr);
  EXPECT_THAT(checksums("Torch.add.0.backward", "input"), ElementsAre(3));
  EXPECT_THAT(checksums("Torch.add.0.backward", "output"), IsEmpty());
  EXPECT_THAT(checksums("Module.a.parameters_grad.0", "weight"), ElementsAre(4));
  EXPECT_EQ(dump->Find("Torch.add.1.forward"), nullptr);
}

TEST_F(BenchDumpTest, WhatIsNoDumpWithChecksumsIsRefusedByPath) {
  const std::string path = path_.string();
  EXPECT_THAT(std::string(BenchDump::Load(path + "-none").status().message()), HasSubstr(path + "-none"));
  EXPECT_THAT(std::string(Load("{").status().message()), HasSubstr("not JSON"));
  EXPECT_THAT(std::string(Load("[]").status().message()), HasSubstr("no dump.json"));
  EXPECT_THAT(std::string(Load(core::Cat(R"({"data": {"a": {"output": [)", Tensor("null"), "]}}}")).status().message()),
              HasSubstr("summary_mode md5"));
  EXPECT_TRUE(Load(R"({"data": {}})").ok());
}

}  // namespace
}  // namespace msprobe::capture
