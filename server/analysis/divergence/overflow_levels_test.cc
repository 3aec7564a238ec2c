#include "server/analysis/divergence/overflow_levels.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

}  // namespace
}  // namespace msprobe::server
