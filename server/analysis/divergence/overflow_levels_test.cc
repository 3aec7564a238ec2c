#include "server/analysis/divergence/overflow_levels.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/table/memory_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

std::string Tensor(const std::string& max, const std::string& min = "-1.0", const std::string& mean = "0.5") {
  return Cat(R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": )", max, R"(, "Min": )", min,
             R"(, "Mean": )", mean, R"(, "Norm": 2.0, "requires_grad": false})");
}

std::string Call(const std::string& input, const std::string& output, const std::string& more = "") {
  return Cat(R"({"input_args": [)", input, more.empty() ? "" : ", ", more, R"(], "output": [)", output, "]}");
}

std::vector<std::string> LevelsOf(const std::vector<std::pair<std::string, std::string>>& entries) {
  const MemoryTable step(entries);
  std::vector<std::string> levels;
  for (const OverflowLevel level : OverflowLevels(step.table())) levels.emplace_back(OverflowLevelName(level));
  return levels;
}

using Levels = std::vector<std::string>;

TEST(OverflowLevelsTest, FollowsNanFromItsProducer) {
  EXPECT_EQ(LevelsOf({{"Torch.exp.0.forward", Call(Tensor("1.0"), Tensor("2.0"))},
                      {"Torch.sqrt.0.forward", Call(Tensor("2.0"), Tensor("NaN", "NaN"))},
                      {"Torch.add.0.forward", Call(Tensor("NaN", "NaN"), Tensor("NaN", "NaN", "NaN"))},
                      {"Torch.nan_to_num.0.forward", Call(Tensor("NaN", "NaN", "NaN"), Tensor("3.0"))}}),
            (Levels{"", "critical", "high", "medium"}));
}

TEST(OverflowLevelsTest, LeavesMasksAlone) {
  const std::string infinite = R"({"type": "float", "value": -Infinity})";
  EXPECT_EQ(LevelsOf({{"Torch.where.0.forward", Call(Tensor("0.0"), Tensor("0.0", "-3.4e38", "-Infinity"))},
                      {"Tensor.masked_fill.0.forward", Call(Tensor("2.0"), Tensor("2.0", "-Infinity"), infinite)},
                      {"Tensor.__add__.0.forward", Call(Tensor("2.0", "-Infinity"), Tensor("3.0", "-Infinity"))},
                      {"Functional.softmax.0.forward", Call(Tensor("3.0", "-Infinity"), Tensor("1.0"))}}),
            (Levels{"", "", "", ""}));
}

TEST(OverflowLevelsTest, TellsMasksOfInfinityFromWhatWentWrong) {
  const std::string infinite = R"({"type": "float", "value": -Infinity})";
  const MemoryTable step({{"Tensor.masked_fill.0.forward", Call(Tensor("2.0"), Tensor("2.0", "-Infinity"), infinite)},
                          {"Tensor.__add__.0.forward", Call(Tensor("2.0", "-Infinity"), Tensor("3.0", "-Infinity"))},
                          {"Torch.log.0.forward", Call(Tensor("2.0"), Tensor("0.5", "-Infinity"))},
                          {"Torch.empty.0.forward", Call("", Tensor("7.0", "-Infinity"))}});
  const std::vector<bool> masks = MasksOfInfinity(step.table());
  std::vector<std::string> names;
  for (size_t i = 0; i < masks.size(); ++i) {
    if (masks[i]) names.emplace_back(step.table().rows[i].name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"Tensor.masked_fill.0.forward.output.0",
                                             "Tensor.__add__.0.forward.input.0", "Tensor.__add__.0.forward.output.0"}));
}

TEST(OverflowLevelsTest, SeesNanThatComesOfAMask) {
  const std::string infinite = R"({"type": "float", "value": -Infinity})";
  EXPECT_EQ(LevelsOf({{"Tensor.masked_fill.0.forward", Call(Tensor("2.0"), Tensor("2.0", "-Infinity"), infinite)},
                      {"Functional.softmax.0.forward", Call(Tensor("2.0", "-Infinity"), Tensor("NaN", "NaN"))}}),
            (Levels{"", "critical"}));
}

TEST(OverflowLevelsTest, LeavesMemoryAloneThatNothingWasWrittenTo) {
  EXPECT_EQ(LevelsOf({{"Torch.empty.0.forward", Call("", Tensor("NaN", "NaN"))},
                      {"Tensor.fill_.0.forward", Call(Tensor("NaN", "NaN"), Tensor("0.0"))}}),
            (Levels{"", ""}));
}

TEST(OverflowLevelsTest, DoesNotBlameTheRankThatReceived) {
  EXPECT_EQ(LevelsOf({{"Distributed.all_reduce.0.forward", Call(Tensor("1.0"), Tensor("NaN", "NaN"))}}),
            (Levels{"high"}));
}

TEST(OverflowLevelsTest, KnowsAdditiveMasksByTheLowestNumberOfTheirType) {
  EXPECT_TRUE(HoldsMask("torch.float32", -3.4028234663852886e38, 0));
  EXPECT_TRUE(HoldsMask("torch.float32", -3.4028234663852886e38, -3.4028234663852886e38));
  EXPECT_TRUE(HoldsMask("torch.bfloat16", -3.3895313892515355e38, 4));
  EXPECT_TRUE(HoldsMask("torch.float16", -65472, 30)) << "of scores";
  EXPECT_FALSE(HoldsMask("torch.float16", -65504, 65504)) << "what grew so large";
  EXPECT_FALSE(HoldsMask("torch.float32", -65504, 0));
  EXPECT_FALSE(HoldsMask("torch.float32", -std::numeric_limits<double>::infinity(), 0));
}

std::string Gradient(const std::string& weight) { return Cat(R"({"weight": [)", weight, "]}"); }

TEST(OverflowLevelsTest, BlamesNeitherTheModulesAroundNorTheGradientsAfter) {
  const std::string nan = Tensor("NaN", "NaN");
  MemoryTable step({{"Torch.sqrt.0.forward", Call(Tensor("2.0"), nan)},
                    {"Tensor.pow.0.forward", Call(nan, nan)},
                    {"Module.a.A.forward.0", Call(Tensor("1.0"), nan)},
                    {"Tensor.pow.0.backward", R"({"input": [)" + Tensor("1.0") + R"(], "output": [)" + nan + "]}"},
                    {"Module.a.A.parameters_grad", Gradient(nan)}});
  for (const size_t call : {0, 1, 3}) step.mutable_table().entries[call].parent = "Module.a.A.forward.0";
  Levels levels;
  for (const OverflowLevel level : OverflowLevels(step.table())) levels.emplace_back(OverflowLevelName(level));
  EXPECT_EQ(levels, (Levels{"critical", "high", "high", "high", "high"}));
}

TEST(OverflowLevelsTest, BlamesTheBackwardCallThatMadeIt) {
  const std::string nan = Tensor("NaN", "NaN");
  EXPECT_EQ(LevelsOf({{"Torch.sqrt.0.forward", Call(Tensor("2.0"), Tensor("1.0"))},
                      {"Torch.sqrt.0.backward", R"({"input": [)" + Tensor("1.0") + R"(], "output": [)" + nan + "]}"},
                      {"Module.a.A.parameters_grad", Gradient(nan)}}),
            (Levels{"", "critical", "high"}));
}

TEST(OverflowLevelsTest, DoesNotBlameTheBackwardCallOfAForwardCallThatWasGivenNan) {
  const std::string nan = Tensor("NaN", "NaN");
  EXPECT_EQ(LevelsOf({{"Distributed.recv.0.forward", Call(Tensor("1.0"), nan)},
                      {"Tensor.pow.0.forward", Call(nan, nan)},
                      {"Tensor.pow.0.backward", R"({"input": [)" + Tensor("1.0") + R"(], "output": [)" + nan + "]}"}}),
            (Levels{"high", "high", "high"}));
}

}  // namespace
}  // namespace msprobe::server
