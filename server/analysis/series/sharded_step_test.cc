#include "server/analysis/series/sharded_step.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

using Elements = std::vector<double>;

// What a rank sends of the elements that it has; nothing if it has none.
void AddShard(ShardedStep& step, uint32_t rank, const Elements& shard) {
  if (shard.empty()) return;
  const double count = static_cast<double>(shard.size());
  const double mean = std::accumulate(shard.begin(), shard.end(), 0.0) / count;
  double squares = 0, distances = 0, zeros = 0;
  for (double value : shard) {
    squares += value * value;
    distances += (value - mean) * (value - mean);
    zeros += value == 0;
  }
  const auto [min, max] = std::minmax_element(shard.begin(), shard.end());
  const std::vector<std::pair<const char*, double>> statistics = {{"max", *max},
                                                                  {"min", *min},
                                                                  {"range", *max - *min},
                                                                  {"mean", mean},
                                                                  {"norm", std::sqrt(squares)},
                                                                  {"rms", std::sqrt(squares / count)},
                                                                  {"variance", distances / count},
                                                                  {"zero_share", zeros / count},
                                                                  {"nan", 1},
                                                                  {"kurtosis", 3}};
  for (const auto& [name, value] : statistics) step.Add(name, rank, shard.size(), value);
}

TEST(ShardedStepTest, GivesWhatOnePassOverTheWholeGives) {
  ShardedStep parts, whole;  // uneven shards, one of them empty; the ranks in another order
  AddShard(parts, 2, {});
  AddShard(parts, 1, {-4, 5, 6, 0.5, 0});
  AddShard(parts, 0, {1, 2, 0});
  AddShard(whole, 0, {1, 2, 0, -4, 5, 6, 0.5, 0});
  for (const char* statistic : {"max", "min", "range", "mean", "norm", "rms", "variance", "zero_share"}) {
    ASSERT_TRUE(parts.Of(statistic, 8).has_value()) << statistic;
    EXPECT_NEAR(*parts.Of(statistic, 8), *whole.Of(statistic, 8), 1e-12) << statistic;
  }
  EXPECT_THAT(parts.Of("nan", 8), Optional(2));
}

TEST(ShardedStepTest, AnUpdateIsHeldAgainstTheWholeParameter) {
  ShardedStep step;  // 3 elements that were 1 and changed by 0.1, and one that was 3 and stayed
  step.Add("change", 0, 3, 0.1);
  step.Add("before", 0, 3, 1);
  step.Add("change", 1, 1, 0);
  EXPECT_EQ(step.Of("", 4), std::nullopt) << "of one rank it is not known what the parameter was";
  step.Add("before", 1, 1, 3);
  EXPECT_NEAR(*step.Of("", 4), std::sqrt(3 * 0.01 / (3 + 9)), 1e-12);
}

TEST(ShardedStepTest, NothingIsSaidBeforeAllShardsAreThere) {
  ShardedStep step;
  AddShard(step, 3, {1, 2});
  EXPECT_EQ(step.Of("norm", 5), std::nullopt);
  EXPECT_THAT(step.Silent({3, 4, 5}), ElementsAre(4, 5));
  AddShard(step, 5, {3});
  EXPECT_EQ(step.Of("norm", 5), std::nullopt);
  AddShard(step, 4, {4, 5});
  EXPECT_NEAR(*step.Of("norm", 5), std::sqrt(1 + 4 + 9 + 16 + 25), 1e-12);
  EXPECT_THAT(step.Silent({3, 4, 5}), IsEmpty());
}

TEST(ShardedStepTest, ARankThatComesAgainBeginsTheStepAnew) {
  ShardedStep step;
  step.Add("max", 0, 1, 7);
  step.Add("max", 1, 1, 9);
  EXPECT_THAT(step.Of("max", 2), Optional(9));
  step.Add("max", 1, 1, 3);
  EXPECT_EQ(step.Of("max", 2), std::nullopt) << "the other rank's is of before the restart";
  step.Add("max", 0, 1, 2);
  EXPECT_THAT(step.Of("max", 2), Optional(3));
  EXPECT_EQ(step.values(), 2U);
}

TEST(ShardedStepTest, WhatCannotBeReducedIsNotThere) {
  ShardedStep step;
  AddShard(step, 0, {1, 2});
  EXPECT_EQ(step.Of("kurtosis", 2), std::nullopt);
  ShardedStep without_mean;
  without_mean.Add("variance", 0, 2, 1);
  EXPECT_FALSE(without_mean.Has("variance"));
  EXPECT_THAT(WholesOf("w.shard(1/2@0-1):kurtosis"), IsEmpty());
  EXPECT_THAT(WholesOf("w:mean"), IsEmpty());
  EXPECT_THAT(WholesOf("w.shard(1/2@0-1):mean"), ElementsAre("w:mean", "w:variance"));
  EXPECT_THAT(WholesOf("update_ratio/w.shard(1/2@0-1):change"), ElementsAre("update_ratio/w"));
}

TEST(ShardedStepTest, NanStaysNan) {
  ShardedStep step;
  step.Add("max", 0, 1, std::nan(""));
  step.Add("max", 1, 1, 2);
  EXPECT_TRUE(std::isnan(*step.Of("max", 2)));
}

}  // namespace
}  // namespace msprobe::server
