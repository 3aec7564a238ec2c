#include "agent/capture/steps/step_numbers.h"

#include <gtest/gtest.h>

namespace msprobe::capture {
namespace {

TEST(StepNumbers, CountsCallsByNameAndBeginsAgainWithTheStep) {
  StepNumbers numbers;
  EXPECT_EQ(numbers.NextCount("Torch.add", 0), 0u);
  EXPECT_EQ(numbers.NextCount("Torch.add", 0), 1u);
  EXPECT_EQ(numbers.NextCount("Torch.mul", 0), 0u);
  numbers.EndStep();
  EXPECT_EQ(numbers.NextCount("Torch.add", 0), 0u);
}

TEST(StepNumbers, CountsTheThreadsApart) {
  StepNumbers numbers;
  EXPECT_EQ(numbers.NextCount("Torch.add", 2), 2'000'000u);
  EXPECT_EQ(numbers.NextCount("Torch.add", 0), 0u);
  EXPECT_EQ(numbers.NextCount("Torch.add", 2), 2'000'001u);
}

TEST(StepNumbers, GivesPlacesInOrderAndASavedValueItsOwnAgain) {
  StepNumbers numbers;
  EXPECT_FALSE(numbers.has_ordinals());
  EXPECT_EQ(numbers.NextOrdinal(), 0u);
  EXPECT_EQ(numbers.DebugOrdinal("loss.0.debug"), 1u);
  EXPECT_EQ(numbers.NextOrdinal(), 2u);
  EXPECT_EQ(numbers.DebugOrdinal("loss.0.debug"), 1u);
  EXPECT_TRUE(numbers.has_ordinals());
  numbers.EndStep();
  EXPECT_FALSE(numbers.has_ordinals());
  EXPECT_EQ(numbers.DebugOrdinal("loss.0.debug"), 0u);
}

TEST(StepNumbers, BeginsAGradientRecordWhereTheFirstParameterComesAgain) {
  StepNumbers numbers;
  EXPECT_EQ(numbers.NextGradient("Module.a", "weight", 0).count, 0u);
  const StepNumbers::Gradient bias = numbers.NextGradient("Module.a", "bias", 1);
  EXPECT_EQ(bias.count, 0u);
  EXPECT_EQ(bias.token, 0u);
  const StepNumbers::Gradient again = numbers.NextGradient("Module.a", "weight", 1);
  EXPECT_EQ(again.count, 1u);
  EXPECT_EQ(again.token, 1u);
  EXPECT_EQ(numbers.NextGradient("Module.b", "weight", 1).count, 0u);
  numbers.EndStep();
  EXPECT_EQ(numbers.NextGradient("Module.a", "bias", 2).count, 0u);
  EXPECT_EQ(numbers.NextGradient("Module.a", "bias", 2).count, 1u);
}

}  // namespace
}  // namespace msprobe::capture
