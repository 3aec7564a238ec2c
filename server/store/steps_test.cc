#include "server/store/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/store/store_fixture.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

using StepsTest = StoreTest;

TEST_F(StepsTest, NotFoundNamesWhatThereIs) {
  EXPECT_THAT(std::string(store_->catalogue().FindRun("x").status().message()), HasSubstr("there are none"));
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  rank.set_number(2);
  v1::Hello hello = HelloOf('a', "r");
  *hello.mutable_rank() = rank;
  ASSERT_TRUE(store_->catalogue().RegisterSession(hello).ok());
  EXPECT_THAT(std::string(store_->catalogue().FindRun("x").status().message()), HasSubstr("there are: r"));
  PutStep({1, 2, 7, 0}, v1::StepSummary::COMPLETE);
  EXPECT_THAT(std::string(store_->steps().Open("r", 8, rank).status().message()),
              HasSubstr("no step 8 of rank2; it has 7"));
  EXPECT_THAT(std::string(store_->steps().Open("r", 7, rank, 5).status().message()), HasSubstr("epoch 5"));
  rank.set_number(3);
  EXPECT_THAT(std::string(store_->steps().Open("r", 7, rank).status().message()), HasSubstr("no rank3; it has rank2"));
  rank.set_number(2);
  for (uint32_t step = 100; step < 130; ++step) PutStep({1, 2, step, 0}, v1::StepSummary::COMPLETE);
  const std::string many(store_->steps().Open("r", 8, rank).status().message());
  EXPECT_THAT(many, HasSubstr("it has 7, 100, 101"));
  EXPECT_THAT(many, testing::EndsWith("117, 118, ...")) << "not all thirty of them";
}

TEST_F(StepsTest, LatestEpochIsShownAndEarlierOnesStayReachable) {
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('a', "r")).ok());
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('b', "r")).ok());
  PutStep({1, 0, 3, 0}, v1::StepSummary::INCOMPLETE);
  PutStep({1, 0, 3, 1}, v1::StepSummary::COMPLETE);
  PutStep({1, 0, 2, 0}, v1::StepSummary::COMPLETE);
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  EXPECT_EQ((*store_->steps().Open("r", 3, rank))->epoch(), 1u);
  EXPECT_EQ((*store_->steps().Open("r", 3, rank, 0))->epoch(), 0u);
  EXPECT_EQ((*store_->steps().Open("r", 2, rank))->epoch(), 0u);
}

TEST_F(StepsTest, RankMoveTakesOneSessionOnly) {
  const uint32_t process = 0x80000000u | 4242;
  PutStep({1, process, 0, 0}, v1::StepSummary::COMPLETE);
  PutStep({1, process, 0, 1}, v1::StepSummary::COMPLETE);
  ChangeSet fault;
  fault.PutMeta(FaultKey({1, process, 0, 0}, 0), v1::Marker::Fault());
  ASSERT_TRUE(store_->database().Write(fault).ok());
  ChangeSet move;
  ASSERT_TRUE(store_->steps().AddRankMove(1, 0, process, 5, move).ok());
  ASSERT_TRUE(store_->database().Write(move).ok());
  EXPECT_EQ(Count(Family::kRows, RowKey::RankPrefix(1, 5)), 1u);
  EXPECT_EQ(Count(Family::kRows, RowKey::RankPrefix(1, process)), 1u);
  EXPECT_EQ(Count(Family::kMeta, MetaPrefix(MetaSpace::kFault, 1, 5)), 1u);
  auto steps = store_->steps().Of(1);
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ((*steps)[0].first, (StepKey{1, 5, 0, 0}));
  EXPECT_EQ((*steps)[1].first, (StepKey{1, process, 0, 1}));
}

TEST_F(StepsTest, StepDeletionTakesOneEpochOnly) {
  PutStep({1, 0, 3, 0}, v1::StepSummary::OPEN);
  PutStep({1, 0, 3, 1}, v1::StepSummary::OPEN);
  ChangeSet changes;
  ASSERT_TRUE(store_->steps().AddDeletion({1, 0, 3, 0}, changes).ok());
  ASSERT_TRUE(store_->database().Write(changes).ok());
  EXPECT_EQ(Count(Family::kRows), 1u);
  EXPECT_EQ(store_->steps().Of(1)->front().first.epoch, 1u);
}

}  // namespace
}  // namespace msprobe::server
