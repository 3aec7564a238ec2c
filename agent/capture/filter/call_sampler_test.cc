#include "agent/capture/filter/call_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace msprobe::capture {
namespace {

using Sample = core::CheckConfig::Sample;

absl::Time clock_now;
absl::Time Now() { return clock_now; }

class CallSamplerTest : public testing::Test {
 protected:
  static core::CheckConfig Of(Sample sample, uint64_t bytes, absl::Duration time) {
    core::CheckConfig config;
    config.sample = sample;
    config.budget_bytes = bytes;
    config.budget_time = time;
    return config;
  }
  // Runs a step of calls with these signatures, of so many bytes each on both sides. Gives the places that were taken.
  static std::vector<int> Step(CallSampler& sampler, const std::vector<uint64_t>& signatures, uint64_t bytes = 10,
                               absl::Duration cost = absl::ZeroDuration()) {
    std::vector<int> taken;
    for (size_t i = 0; i < signatures.size(); ++i) {
      const CallSampler::Sight sight{.signature = signatures[i], .input_bytes = bytes};
      if (!sampler.Takes(sight)) continue;
      taken.push_back(static_cast<int>(i));
      const CallSampler::Cost spent(&sampler);
      EXPECT_TRUE(sampler.Keeps(bytes));
      EXPECT_TRUE(sampler.Keeps(bytes));
      sampler.Learn(sight, bytes);
      clock_now += cost;
    }
    EXPECT_LE(sampler.kept_bytes(), 60u);
    clock_now += absl::Milliseconds(100);
    sampler.EndStep();
    return taken;
  }
  using Places = std::vector<int>;
};

TEST_F(CallSamplerTest, FirstOfItsSignatureAloneThenNothing) {
  CallSampler sampler(Of(Sample::kFirst, 60, absl::Seconds(1)), &Now);
  EXPECT_EQ(Step(sampler, {1, 1, 2, 1, 3}), (Places{0, 2, 4}));
  EXPECT_EQ(Step(sampler, {1, 1, 2, 1, 3}), Places());
  EXPECT_EQ(Step(sampler, {1, 4}), Places{1});
}

// The places that a step of such a sampler takes, of calls of 10 bytes on both sides.
std::vector<uint32_t> ByIdentity(CallSampler& sampler, uint32_t step, uint32_t calls, uint32_t without = 1'000'000) {
  std::vector<uint32_t> taken;
  for (uint32_t call = 0; call < calls; ++call) {
    if (call == without) continue;
    const CallSampler::Sight sight{
        .signature = call % 7, .input_bytes = 10, .identity = CallSampler::IdentityOf("Torch.add", {step, 0, call})};
    if (!sampler.Takes(sight)) continue;
    taken.push_back(call);
    sampler.Learn(sight, 10);
  }
  clock_now += absl::Milliseconds(100);
  sampler.EndStep();
  return taken;
}

TEST_F(CallSamplerTest, ByIdentityTwoRunsTakeTheSameCallsWheneverTheyBegan) {
  CallSampler one(Of(Sample::kIdentity, 2000, absl::ZeroDuration()), &Now);
  CallSampler other(Of(Sample::kIdentity, 2000, absl::ZeroDuration()), &Now);
  EXPECT_EQ(ByIdentity(one, 0, 1000).size(), 100u);  // of a first step what fits
  std::set<uint32_t> seen;
  for (uint32_t step = 1; step < 100; ++step) {
    if (step == 39) ByIdentity(other, step, 1000);  // its first
    const std::vector<uint32_t> taken = ByIdentity(one, step, 1000);
    EXPECT_GT(taken.size(), 30u);
    EXPECT_LE(taken.size(), 100u);
    if (step >= 40) {
      EXPECT_EQ(ByIdentity(other, step, 1000), taken) << step;
    }
    seen.insert(taken.begin(), taken.end());
  }
  EXPECT_GT(seen.size(), 990u);  // every call has its turn
}

TEST_F(CallSamplerTest, ByIdentityACallThatOneRunLacksChangesNoOther) {
  CallSampler one(Of(Sample::kIdentity, 2000, absl::ZeroDuration()), &Now);
  CallSampler other(Of(Sample::kIdentity, 2000, absl::ZeroDuration()), &Now);
  ByIdentity(one, 0, 1000);
  ByIdentity(other, 0, 1000, 3);
  for (uint32_t step = 1; step < 50; ++step) {
    std::vector<uint32_t> taken = ByIdentity(one, step, 1000);
    std::erase(taken, 3);
    EXPECT_EQ(ByIdentity(other, step, 1000, 3), taken);
  }
}

TEST_F(CallSamplerTest, ASmallerShareIsPartOfALargerOne) {
  CallSampler large(Of(Sample::kIdentity, 8000, absl::ZeroDuration()), &Now);
  CallSampler small(Of(Sample::kIdentity, 1000, absl::ZeroDuration()), &Now);
  ByIdentity(large, 0, 1000);
  ByIdentity(small, 0, 1000);
  for (uint32_t step = 1; step < 20; ++step) {
    const std::vector<uint32_t> more = ByIdentity(large, step, 1000);
    for (const uint32_t call : ByIdentity(small, step, 1000)) {
      EXPECT_TRUE(std::binary_search(more.begin(), more.end(), call));
    }
  }
}

TEST_F(CallSamplerTest, FirstsGoAheadOfTurns) {
  CallSampler sampler(Of(Sample::kTurns, 60, absl::Seconds(1)), &Now);
  EXPECT_EQ(Step(sampler, {1, 1, 1, 1, 2, 3}), (Places{0, 1, 2}));  // 4 and 5 do not fit
  EXPECT_EQ(Step(sampler, {1, 1, 1, 1, 2, 3}), (Places{4, 5}));     // no others
  EXPECT_EQ(Step(sampler, {1, 1, 1, 1, 2, 3}), (Places{3, 4, 5}));  // on from where the turn was
  EXPECT_EQ(Step(sampler, {1, 1, 1, 1, 2, 3}), (Places{0, 1, 2}));
}

TEST_F(CallSamplerTest, WhatTheLastCallTookOverIsTakenOffTheNextStep) {
  CallSampler sampler(Of(Sample::kTurns, 60, absl::Milliseconds(10)), &Now);
  EXPECT_EQ(Step(sampler, {1, 1, 1}, 10, absl::Milliseconds(25)), Places{0});
  EXPECT_EQ(Step(sampler, {1, 1, 1}, 10, absl::Milliseconds(25)), Places());   // 15 over
  EXPECT_EQ(Step(sampler, {1, 1, 1}, 10, absl::Milliseconds(25)), Places{1});  // 5 over before
}

TEST_F(CallSamplerTest, SendingIsTakenOffTheNextStep) {
  CallSampler sampler(Of(Sample::kTurns, 60, absl::Milliseconds(10)), &Now);
  EXPECT_TRUE(sampler.Takes({.signature = 1, .input_bytes = 1}));
  sampler.EndStep(absl::Milliseconds(25));
  EXPECT_FALSE(sampler.Takes({.signature = 1, .input_bytes = 1}));  // 15 over
  sampler.EndStep();
  EXPECT_TRUE(sampler.Takes({.signature = 1, .input_bytes = 1}));  // 5 over
}

TEST_F(CallSamplerTest, WithoutATimeItIsAShareOfTheStepBefore) {
  CallSampler sampler(Of(Sample::kTurns, 60, absl::ZeroDuration()), &Now);
  EXPECT_EQ(Step(sampler, {1, 1, 1, 1}, 10, absl::Milliseconds(50)), (Places{0, 1, 2}));  // unlimited
  EXPECT_EQ(Step(sampler, {1, 1, 1, 1}, 10, absl::Milliseconds(5)), Places{3});           // 2 % of 250 ms
  EXPECT_EQ(Step(sampler, {1, 1, 1, 1}, 10, absl::Milliseconds(1)), (Places{0, 1, 2}));
}

TEST_F(CallSamplerTest, WhatIsLargerThanAnyStepIsNeverTaken) {
  CallSampler sampler(Of(Sample::kTurns, 60, absl::Seconds(1)), &Now);
  for (int step = 0; step < 3; ++step) EXPECT_FALSE(sampler.Takes({.signature = 1, .input_bytes = 61}));
  sampler.EndStep();
  EXPECT_TRUE(sampler.Takes({.signature = 2, .input_bytes = 50}));  // alone, whatever is expected to follow
  EXPECT_TRUE(sampler.Keeps(50));
  EXPECT_FALSE(sampler.Keeps(50));  // but no more is kept
  sampler.Learn({.signature = 2}, 50);
  sampler.EndStep();
  EXPECT_FALSE(sampler.Takes({.signature = 2, .input_bytes = 50}));
}

TEST_F(CallSamplerTest, GradientsCountAhead) {
  CallSampler sampler(Of(Sample::kTurns, 60, absl::Seconds(1)), &Now);
  EXPECT_TRUE(sampler.Takes({.signature = 1, .input_bytes = 10, .has_gradients = true}));  // 40
  EXPECT_FALSE(sampler.Takes({.signature = 2, .input_bytes = 10, .has_gradients = true}));
  EXPECT_TRUE(sampler.Takes({.signature = 3, .input_bytes = 10}));
}

}  // namespace
}  // namespace msprobe::capture
