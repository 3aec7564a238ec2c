#include "agent/capture/compare/diff_check.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::capture {
namespace {

using ::testing::HasSubstr;

class FakePayload : public core::Payload {
 public:
  std::span<std::byte> bytes() override { return {}; }
};

TensorReading Reading(uint32_t crc32) {
  TensorReading reading;
  reading.shape = {2};
  reading.dtype = 2;
  reading.leaf.crc32 = crc32;
  reading.leaf.payload = std::make_shared<FakePayload>();
  return reading;
}

FragmentBuilder Fragment(std::string_view field, const std::vector<uint32_t>& checksums) {
  FragmentBuilder builder;
  builder.Start("Torch.add", core::RecordKind::kApi, core::Direction::kForward);
  builder.Key(field);
  builder.BeginList();
  for (const uint32_t each : checksums) builder.Tensor(Reading(each));
  builder.End();
  return builder;
}

bool HasPayloads(const FragmentBuilder& builder) {
  for (const core::Leaf& leaf : builder.leaves()) {
    if (leaf.payload == nullptr) return false;
  }
  return true;
}

class DiffCheckTest : public ::testing::Test {
 protected:
  // A dump whose Torch.add.{0,1,2}.forward takes checksums 1 and 2 and gives 3.
  DiffCheckTest() {
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / core::Cat("diff-check-", getpid(), ".json");
    const auto tensor = [](int crc) {
      return core::Cat(R"({"dtype": "torch.float32", "shape": [2], "md5": "0000000)", crc, "\"}");
    };
    std::string data =
        core::Cat(R"("Module.a.parameters_grad.0": {"bias": [)", tensor(5), R"(], "weight": [)", tensor(6), "]}");
    for (int i = 0; i < 3; ++i) {
      data += core::Cat(",\"Torch.add.", i, R"(.forward": {"input_args": [)", tensor(1), ",", tensor(2),
                        R"(], "input_kwargs": {}, "output": [)", tensor(3), "]}");
    }
    std::ofstream(path) << "{\"data\": {" << data << "}}";
    absl::StatusOr<BenchDump> loaded = BenchDump::Load(path.string());
    std::filesystem::remove(path);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    bench_ = std::make_shared<const BenchDump>(*std::move(loaded));
  }

  // A call with these checksums; gives what is said where it ends.
  DiffCheck::Verdict Call(DiffCheck& check, const std::string& name, const std::vector<uint32_t>& inputs,
                          const std::vector<uint32_t>& outputs) {
    FragmentBuilder begin = Fragment("input_args", inputs);
    EXPECT_FALSE(check.Check(name, true, false, begin).differs);
    for (const core::Leaf& leaf : begin.leaves()) EXPECT_EQ(leaf.payload, nullptr);
    end_ = Fragment("output", outputs);
    return check.Check(name, false, true, end_);
  }

  std::shared_ptr<const BenchDump> bench_;
  FragmentBuilder end_;
};

TEST_F(DiffCheckTest, OnlyOtherOutputsOfEqualInputsDiffer) {
  DiffCheck check(-1);
  check.SetBench(bench_);
  EXPECT_TRUE(check.comparing());
  EXPECT_FALSE(Call(check, "Torch.add.0.forward", {1, 2}, {3}).differs);
  EXPECT_FALSE(HasPayloads(end_));
  EXPECT_FALSE(Call(check, "Torch.add.1.forward", {1, 7}, {9}).differs) << "its inputs differ already";
  EXPECT_FALSE(Call(check, "Torch.add.1.forward", {1}, {9}).differs) << "another number of inputs";
  EXPECT_FALSE(Call(check, "Torch.sub.0.forward", {1, 2}, {9}).differs) << "the other dump has no such record";

  const DiffCheck::Verdict verdict = Call(check, "Torch.add.1.forward", {1, 2}, {9});
  EXPECT_TRUE(verdict.differs);
  ASSERT_NE(verdict.held, nullptr);
  EXPECT_TRUE(HasPayloads(*verdict.held));
  EXPECT_TRUE(HasPayloads(end_));
  EXPECT_THAT(verdict.message, HasSubstr("Torch.add.1.forward differs"));
  EXPECT_THAT(verdict.message, HasSubstr("00000009, there 00000003"));
  EXPECT_TRUE(check.comparing());
}

TEST_F(DiffCheckTest, ARecordInOneFragmentIsComparedToo) {
  DiffCheck check(-1);
  check.SetBench(bench_);
  FragmentBuilder whole = Fragment("input_args", {1, 2});
  whole.Key("output");
  whole.Tensor(Reading(4));
  const DiffCheck::Verdict verdict = check.Check("Torch.add.0.forward", true, true, whole);
  EXPECT_TRUE(verdict.differs);
  EXPECT_EQ(verdict.held, nullptr);
  EXPECT_TRUE(HasPayloads(whole));
}

TEST_F(DiffCheckTest, GradientsOfParametersAreComparedOneByOne) {
  DiffCheck check(-1);
  check.SetBench(bench_);
  const auto differs = [&](std::string_view parameter, uint32_t checksum) {
    FragmentBuilder whole = Fragment(parameter, {checksum});
    return check.Check("Module.a.parameters_grad.0", true, true, whole).differs;
  };
  EXPECT_FALSE(differs("bias", 5));
  EXPECT_FALSE(differs("weight", 6));
  EXPECT_TRUE(differs("weight", 7));
  EXPECT_FALSE(differs("other", 7)) << "the other dump has none";
}

TEST_F(DiffCheckTest, EndsAfterDiffNums) {
  DiffCheck check(2);
  EXPECT_FALSE(check.comparing()) << "nothing to compare with";
  check.SetBench(bench_);
  EXPECT_TRUE(Call(check, "Torch.add.0.forward", {1, 2}, {8}).differs);
  EXPECT_FALSE(check.done());
  EXPECT_TRUE(Call(check, "Torch.add.1.forward", {1, 2}, {8}).differs);
  EXPECT_TRUE(check.done());
  EXPECT_FALSE(check.comparing());
  EXPECT_FALSE(Call(check, "Torch.add.2.forward", {1, 2}, {8}).differs);
}

TEST_F(DiffCheckTest, WhatNeverEndedIsForgottenWithItsStep) {
  DiffCheck check(1);
  check.SetBench(bench_);
  FragmentBuilder begin = Fragment("input_args", {1, 2});
  check.Check("Torch.add.0.forward", true, false, begin);
  check.EndStep();
  FragmentBuilder end = Fragment("output", {9});
  EXPECT_FALSE(check.Check("Torch.add.0.forward", false, true, end).differs) << "the inputs are not known any more";
}

}  // namespace
}  // namespace msprobe::capture
