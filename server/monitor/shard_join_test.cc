#include "server/monitor/shard_join.h"

#include <gmock/gmock.h>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

class ShardJoinTest : public testing::Test {
 protected:
  // A rank has 2 elements of 6; the last of the ranks 4 to 7 has none.
  std::vector<ShardJoin::Point> Add(uint32_t rank, uint32_t step, double value, std::string_view statistic = "max") {
    return join_.Add(statistic, rank, 2, step, value);
  }

  ShardJoin join_{*ShardName::Of("w.shard(2/6@4-7):max")};
};

TEST_F(ShardJoinTest, TheLastShardOfAStepGivesTheWhole) {
  EXPECT_EQ(join_.first_rank(), 4U);
  EXPECT_THAT(Add(6, 0, 1), IsEmpty());
  EXPECT_THAT(Add(6, 1, 4), IsEmpty());
  EXPECT_THAT(Add(4, 0, 3), IsEmpty());
  EXPECT_THAT(Add(5, 0, 2), ElementsAre(FieldsAre("w:max", 3)));
  EXPECT_THAT(Add(5, 1, 5), IsEmpty());
  EXPECT_THAT(Add(4, 1, 6), ElementsAre(FieldsAre("w:max", 6)));
  EXPECT_THAT(join_.TakeGivenUp(), IsEmpty());
}

TEST_F(ShardJoinTest, AVarianceComesWithTheLastOfWhatItNeeds) {
  for (uint32_t rank : {4u, 5u, 6u}) EXPECT_THAT(Add(rank, 0, 1, "variance"), IsEmpty());
  Add(4, 0, 0, "mean");
  Add(5, 0, 0, "mean");
  EXPECT_THAT(Add(6, 0, 3, "mean"), ElementsAre(FieldsAre("w:mean", 1), FieldsAre("w:variance", 3)));
}

TEST_F(ShardJoinTest, WhoWasMissingIsNamedWhenALaterStepIsWhole) {
  for (uint32_t rank : {4u, 5u, 6u}) Add(rank, 0, 1);
  Add(4, 1, 1);
  Add(5, 1, 1);
  EXPECT_THAT(join_.TakeGivenUp(), IsEmpty());
  for (uint32_t rank : {4u, 5u, 6u}) Add(rank, 2, 1);
  EXPECT_THAT(join_.TakeGivenUp(), ElementsAre(FieldsAre(1, ElementsAre(6))));
}

TEST_F(ShardJoinTest, ARankThatStaysAwayIsNotWaitedForWithoutEnd) {
  for (uint32_t step = 0; step <= ShardJoin::kMostSteps; ++step) Add(4, step, 1);
  EXPECT_THAT(join_.TakeGivenUp(), ElementsAre(FieldsAre(0, ElementsAre(5, 6, 7))));
}

TEST_F(ShardJoinTest, ARestartedJobBeginsItsStepsAnew) {
  for (uint32_t rank : {4u, 5u, 6u}) Add(rank, 1000, 9);
  for (uint32_t step = 5; step < 5 + 2 * ShardJoin::kMostSteps; ++step) {
    Add(4, step, 1);
    Add(5, step, 1);
    EXPECT_THAT(Add(6, step, 2), ElementsAre(FieldsAre("w:max", 2))) << step;
  }
  EXPECT_THAT(join_.TakeGivenUp(), IsEmpty());
}

}  // namespace
}  // namespace msprobe::server
