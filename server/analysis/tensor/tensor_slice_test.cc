#include "server/analysis/tensor/tensor_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using Run = std::pair<uint64_t, uint64_t>;

DimensionSlice Slice(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step = 1) {
  DimensionSlice slice;
  slice.start = start;
  slice.stop = stop;
  slice.step = step;
  return slice;
}

DimensionSlice At(int64_t index) {
  DimensionSlice slice;
  slice.start = index;
  slice.index = true;
  return slice;
}

std::vector<Run> RunsOf(const SlicePlan& plan) {
  std::vector<Run> runs;
  EXPECT_TRUE(plan.ForEachRun([&](uint64_t offset, uint64_t count) {
                    runs.emplace_back(offset, count);
                    return absl::OkStatus();
                  })
                  .ok());
  return runs;
}

TEST(SlicePlanTest, WhatIsConsecutiveIsOneRun) {
  const auto whole = SlicePlan::Make({4, 3, 5}, {});
  ASSERT_TRUE(whole.ok());
  EXPECT_THAT(RunsOf(*whole), ElementsAre(Pair(0, 60)));
  const auto rows = SlicePlan::Make({4, 3, 5}, {Slice(1, 3)});
  ASSERT_TRUE(rows.ok());
  EXPECT_THAT(rows->shape(), ElementsAre(2, 3, 5));
  EXPECT_THAT(RunsOf(*rows), ElementsAre(Pair(15, 30)));
}

TEST(SlicePlanTest, StepsAndIndexesCutRunsAndDropDimensions) {
  const auto plan = SlicePlan::Make({4, 3, 5}, {Slice({}, {}, 2), At(-1), Slice(1, -1)});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->shape(), ElementsAre(2, 3));
  EXPECT_THAT(RunsOf(*plan), ElementsAre(Pair(11, 3), Pair(41, 3)));
}

TEST(SlicePlanTest, AnEmptyPartHasNoRuns) {
  const auto plan = SlicePlan::Make({4, 3}, {Slice(3, 1)});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->shape(), ElementsAre(0, 3));
  EXPECT_TRUE(RunsOf(*plan).empty());
}

TEST(SlicePlanTest, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(std::string(SlicePlan::Make({4}, {At(4)}).status().message()),
              HasSubstr("index 4 is outside of dimension 0, which has 4"));
  EXPECT_THAT(std::string(SlicePlan::Make({4}, {Slice({}, {}, 0)}).status().message()), HasSubstr("slice step 0"));
  EXPECT_THAT(std::string(SlicePlan::Make({4}, {DimensionSlice(), DimensionSlice()}).status().message()),
              HasSubstr("2 slices"));
}

}  // namespace
}  // namespace msprobe::server
