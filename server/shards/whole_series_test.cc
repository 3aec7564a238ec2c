#include "server/shards/whole_series.h"

#include <gmock/gmock.h>

#include <cmath>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::Key;

class WholeSeriesTest : public testing::Test {
 protected:
  void Put(const std::string& name, uint32_t rank, const std::vector<SeriesPoint>& points, int64_t opened = 1) {
    series_[{name, rank}] = points;
    wholes_.Note(name, opened);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [key, series] : series_) names.push_back(key.first + " " + std::to_string(key.second));
    return names;
  }

  WholeSeries wholes_;
  SeriesByName series_;
};

TEST_F(WholeSeriesTest, AWholeStandsInPlaceOfItsShards) {
  Put("loss", 0, {{0, 1}});
  Put("w.shard(2/3@4-5):norm", 4, {{0, 3}, {1, 6}});
  Put("w.shard(1/3@4-5):norm", 5, {{0, 4}, {1, 8}});
  Put("w.shard(2/3@4-5):kurtosis", 4, {{0, 3}});
  wholes_.Join("", series_);
  EXPECT_THAT(Names(), ElementsAre("loss 0", "w.shard(2/3@4-5):kurtosis 4", "w:norm 4"));
  EXPECT_THAT((series_[{"w:norm", 4}]), ElementsAre(FieldsAre(0, 5), FieldsAre(1, 10)));
}

TEST_F(WholeSeriesTest, ShardsAreShownWhereThePatternNamesThem) {
  Put("w.shard(1/2@0-1):norm", 0, {{0, 3}});
  Put("w.shard(1/2@0-1):norm", 1, {{0, 4}});
  wholes_.Join("*.shard(*", series_);
  EXPECT_THAT(Names(), ElementsAre("w.shard(1/2@0-1):norm 0", "w.shard(1/2@0-1):norm 1"));
}

TEST_F(WholeSeriesTest, WhatIsOnlyNeededIsNotShown) {
  for (uint32_t rank : {0u, 1u}) {
    Put("w.shard(1/2@0-1):mean", rank, {{0, 2.0 * rank}});
    Put("w.shard(1/2@0-1):variance", rank, {{0, 0.5}});
  }
  wholes_.Join("w:variance", series_);
  ASSERT_THAT(Names(), ElementsAre("w:variance 0"));
  EXPECT_THAT((series_[{"w:variance", 0}]), ElementsAre(FieldsAre(0, 1.5)));
}

TEST_F(WholeSeriesTest, AStepThatARankLacksIsLeftOutAndItsShardsSayWhoIsBehind) {
  Put("w.shard(1/3@0-3):norm", 0, {{7, 1}, {8, 1}, {9, 1}});
  Put("w.shard(1/3@0-3):norm", 1, {{7, 1}, {8, 1}, {9, 1}});
  Put("w.shard(1/3@0-3):norm", 2, {{7, 1}});  // rank 3 has no elements
  Put("v.shard(1/2@0-1):norm", 0, {{7, 1}});  // rank 1 never came
  wholes_.Join("", series_);
  EXPECT_THAT(Names(), ElementsAre("v.shard(1/2@0-1):norm 0", "w.shard(1/3@0-3):norm 0", "w.shard(1/3@0-3):norm 1",
                                   "w.shard(1/3@0-3):norm 2", "w:norm 0"));
  EXPECT_THAT((series_[{"w:norm", 0}]), ElementsAre(FieldsAre(7, testing::DoubleEq(std::sqrt(3)))));
}

TEST_F(WholeSeriesTest, CopiesOfTheWholeAreSeriesOfTheirFirstRanks) {
  for (uint32_t rank : {0u, 2u}) Put("w.shard(1/2@0-2+2):max", rank, {{0, 1.0 + rank}});
  for (uint32_t rank : {1u, 3u}) Put("w.shard(1/2@1-3+2):max", rank, {{0, 1.0 + rank}});
  wholes_.Join("", series_);
  EXPECT_THAT(Names(), ElementsAre("w:max 0", "w:max 1"));
}

TEST_F(WholeSeriesTest, AJobThatGoesOnWithOtherRanksIsOneSeries) {
  for (uint32_t rank : {0u, 1u}) Put("w.shard(1/2@0-1):max", rank, {{0, 1}, {1, 1}}, 20);
  series_[{"w.shard(1/2@0-1):max", 1}].pop_back();  // when the job ended
  Put("w.shard(1/2@0,4):max", 0, {{1, 5}, {2, 5}}, 30);
  Put("w.shard(1/2@0,4):max", 4, {{1, 5}, {2, 5}}, 30);
  wholes_.Join("", series_);
  ASSERT_THAT(series_, ElementsAre(Key(testing::Pair("w:max", 0))));
  EXPECT_THAT((series_[{"w:max", 0}]), ElementsAre(FieldsAre(0, 1), FieldsAre(1, 5), FieldsAre(2, 5)));
}

TEST_F(WholeSeriesTest, ListsHaveTheNamesThatAreShown) {
  EXPECT_THAT(ShownNames({"loss", "w.shard(1/2@0-1):kurtosis", "w.shard(1/2@0-1):mean", "w.shard(1/2@0-1):variance",
                          "v.shard(1/2@0-1):variance"}),
              ElementsAre("loss", "v.shard(1/2@0-1):variance", "w.shard(1/2@0-1):kurtosis", "w:mean", "w:variance"));
}

}  // namespace
}  // namespace msprobe::server
