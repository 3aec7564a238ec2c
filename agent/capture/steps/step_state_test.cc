#include "agent/capture/steps/step_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace msprobe::capture {
namespace {

TEST(StepStateTest, CapturesFromStartToStop) {
  StepState step;
  EXPECT_FALSE(step.watching());
  step.Start(3);
  EXPECT_TRUE(step.capturing());
  EXPECT_EQ(step.number(), 3u);
  step.Stop();
  EXPECT_FALSE(step.capturing());
  EXPECT_FALSE(step.watching());
}

TEST(StepStateTest, CapturesOnlyTheForwardPassesThatAreAskedFor) {
  StepState step;
  step.Start(0, TokenWindow::Range{1, 1});
  EXPECT_FALSE(step.capturing());
  step.BeginToken();
  EXPECT_FALSE(step.capturing());
  EXPECT_EQ(step.BeginToken(), 1u);
  EXPECT_TRUE(step.capturing());
  step.BeginToken();
  EXPECT_FALSE(step.capturing());
  EXPECT_TRUE(step.watching());
}

TEST(StepStateTest, GoingOnCountsThePassesOn) {
  StepState step;
  step.Start(0, TokenWindow::Range{1, 1});
  step.BeginToken();
  step.Stop();
  step.GoOn(1);
  EXPECT_FALSE(step.capturing());
  step.BeginToken();
  EXPECT_TRUE(step.capturing());
  EXPECT_EQ(step.number(), 1u);
}

TEST(StepStateTest, EveryThreadHasTheTokenOfThePassThatItBegan) {
  StepState step;
  step.Start(0);
  EXPECT_EQ(step.BeginToken(), 0u);
  std::thread other([&] {
    EXPECT_EQ(step.token(), 0u);  // it has begun none: the latest
    EXPECT_EQ(step.BeginToken(), 1u);
    EXPECT_EQ(step.token(), 1u);
  });
  other.join();
  EXPECT_EQ(step.token(), 0u);
  EXPECT_EQ(step.latest_token(), 1u);
}

TEST(StepStateTest, TheNextStepBeginsWithTheFirstToken) {
  StepState step;
  step.Start(0);
  step.BeginToken();
  step.BeginToken();
  const uint32_t id = step.id();
  const StepState::Contents had = step.End(0);
  EXPECT_TRUE(had.passes);
  EXPECT_FALSE(had.records);
  EXPECT_EQ(step.number(), 1u);
  EXPECT_GT(step.id(), id);
  EXPECT_EQ(step.token(), 0u);
  step.NoteRecord();
  EXPECT_EQ(step.BeginToken(), 0u);
  EXPECT_TRUE(step.End(1).records);
  EXPECT_FALSE(step.End(2).passes);
}

TEST(StepStateTest, StepsOfTwoRecordersHaveDifferentIds) { EXPECT_NE(StepState().id(), StepState().id()); }

TEST(StepStateTest, AForkedChildHasNoStepAndBeginsNone) {
  StepState step;
  step.Start(3);
  const pid_t child = fork();
  if (child == 0) {
    bool none = step.forked() && !step.watching() && !step.capturing() && step.number() != 3;
    step.Start(3);
    step.GoOn(3);
    none = none && !step.watching() && step.number() != 3;
    _exit(none ? 0 : 1);
  }
  int result = -1;
  waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  EXPECT_FALSE(step.forked());
  EXPECT_TRUE(step.capturing());
}

}  // namespace
}  // namespace msprobe::capture
