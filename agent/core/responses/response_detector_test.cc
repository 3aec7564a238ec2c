#include "agent/core/responses/response_detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace msprobe::core {
namespace {

SampledToken Sure(int64_t id, double top1 = -0.05) { return {.id = id, .has_logprobs = true, .top1 = top1, .mass = 1}; }

// A loop of `period` tokens, each with a log-probability of its own.
SampledToken OfLoop(uint64_t i, uint64_t period) {
  const uint64_t place = i % period;
  return Sure(static_cast<int64_t>(place), place == 0 ? -0.15 : -0.01);
}

struct Told {
  std::vector<ResponseDetector::Finding> findings;
  ResponseFault verdict = ResponseFault::kNone;
};

template <typename Make>
Told Judge(uint64_t tokens, Make make, const ResponseRules& rules = {}) {
  ResponseDetector detector(rules);
  Told told;
  for (uint64_t i = 0; i < tokens; ++i) {
    if (auto found = detector.Add(make(i)); found.has_value()) told.findings.push_back(*found);
  }
  if (auto found = detector.Finish(); found.has_value()) told.findings.push_back(*found);
  told.verdict = detector.verdict();
  return told;
}

TEST(ResponseDetectorTest, TextIsNoFault) {
  const Told told =
      Judge(1000, [](uint64_t i) { return Sure(static_cast<int64_t>(i * i % 997), i % 5 == 0 ? -2 : -0.1); });
  EXPECT_TRUE(told.findings.empty());
  EXPECT_EQ(told.verdict, ResponseFault::kNone);
}

TEST(ResponseDetectorTest, ALoopIsFoundInItsThirdWindow) {
  const Told told = Judge(1000, [](uint64_t i) { return OfLoop(i, 8); });
  ASSERT_EQ(told.findings.size(), 1u);
  EXPECT_EQ(told.findings[0].fault, ResponseFault::kRepeat);
  EXPECT_EQ(told.findings[0].first, 128u);
  EXPECT_EQ(told.findings[0].last, 255u);
  EXPECT_EQ(told.findings[0].why,
            "it repeats itself: of the 3-grams of tokens 128 to 255 0.06349 are distinct, and 3 windows are like that");
}

TEST(ResponseDetectorTest, TheEndOfAReplyJudgesTheWindowsThatItCutsOff) {
  // 191 tokens: windows of 128, 127 and 63 tokens, the last of which is too short.
  EXPECT_EQ(Judge(191, [](uint64_t i) { return OfLoop(i, 8); }).verdict, ResponseFault::kNone);
  EXPECT_EQ(Judge(192, [](uint64_t i) { return OfLoop(i, 8); }).verdict, ResponseFault::kRepeat);
}

TEST(ResponseDetectorTest, WithoutLogProbabilitiesALoopNeedsFifteenWindows) {
  const auto loop = [](uint64_t i) { return SampledToken{.id = static_cast<int64_t>(i % 8)}; };
  const Told told = Judge(2000, loop);
  ASSERT_EQ(told.findings.size(), 1u);
  EXPECT_EQ(told.findings[0].last, 128u + 14 * 64 - 1);
  EXPECT_EQ(Judge(300, loop, {.repeat_single_windows = 1}).verdict, ResponseFault::kRepeat);
}

TEST(ResponseDetectorTest, AHarmonicIsNeeded) {
  // A bump that comes twice, 40 tokens apart: the lag is there, but neither its double nor its triple.
  const auto twice = [](uint64_t i) {
    const bool bump = (i % 128 >= 10 && i % 128 < 13) || (i % 128 >= 50 && i % 128 < 53);
    return Sure(static_cast<int64_t>(i), bump ? -0.19 : -0.01);
  };
  const ResponseRules eager{.repeat_correlation = 0.3, .repeat_single_windows = 0};
  EXPECT_EQ(Judge(128, twice, eager).verdict, ResponseFault::kNone);
  const auto always = [](uint64_t i) { return Sure(static_cast<int64_t>(i), i % 40 < 3 ? -0.19 : -0.01); };
  EXPECT_EQ(Judge(128, always, eager).verdict, ResponseFault::kRepeat);
}

TEST(ResponseDetectorTest, RareAndNotFiniteAreFoundAtTheToken) {
  const auto make = [](uint64_t i) {
    if (i == 3) return Sure(3, -6.5);
    SampledToken token = Sure(static_cast<int64_t>(i));
    if (i == 5) token.mass = std::numeric_limits<double>::quiet_NaN();
    return token;
  };
  const Told told = Judge(6, make);
  ASSERT_EQ(told.findings.size(), 2u);
  EXPECT_EQ(told.findings[0].why, "token 3 is rare: its best candidate has log-probability -6.5, below -6");
  EXPECT_EQ(told.findings[1].why, "token 5 has a log-probability that is not finite");
  EXPECT_EQ(told.findings[1].first, 5u);
  EXPECT_EQ(told.verdict, ResponseFault::kNotFinite);
}

TEST(ResponseDetectorTest, GarbledNeedsItsShareOfAWindow) {
  const auto of_ten = [](uint64_t bad) {
    return [bad](uint64_t i) {
      SampledToken token = Sure(static_cast<int64_t>(i), i % 10 < bad ? -5.5 : -1);
      token.mass = i % 10 < bad ? 0.1 : 0.9;
      return token;
    };
  };
  EXPECT_EQ(Judge(500, of_ten(2)).verdict, ResponseFault::kGarbled);  // 26 of the first 128
  EXPECT_EQ(Judge(100, of_ten(2)).verdict, ResponseFault::kNone);     // 20 of 100
  EXPECT_EQ(Judge(63, of_ten(5)).verdict, ResponseFault::kNone);      // shorter than a stride
  const Told told = Judge(500, of_ten(3));
  ASSERT_EQ(told.findings.size(), 1u);
  EXPECT_EQ(told.findings[0].last, 127u);
}

TEST(ResponseDetectorTest, WithAVocabularyKindsOfCandidatesDecide) {
  const auto of_kinds = [](uint32_t kinds) {
    return [kinds](uint64_t i) {
      SampledToken token = Sure(static_cast<int64_t>(i), -7);
      token.mass = 0.01;
      token.categories = kinds;
      return token;
    };
  };
  EXPECT_EQ(Judge(10, of_kinds(2)).verdict, ResponseFault::kNone);
  EXPECT_EQ(Judge(10, of_kinds(3)).verdict, ResponseFault::kRare);
  EXPECT_EQ(Judge(64, of_kinds(3)).verdict, ResponseFault::kGarbled);
}

TEST(ResponseDetectorTest, WrongRulesAreNamed) {
  EXPECT_EQ(WrongIn({}), "");
  EXPECT_EQ(WrongIn({.stride = 200}), "stride is 200; it should be from 1 to window, 128");
  EXPECT_EQ(WrongIn({.garbled_share = 2}), "garbled_share is 2; it should be from 0 to 1");
  EXPECT_EQ(WrongIn({.rare_top1 = 1}), "rare_top1 is 1; it should be 0 or less");
}

}  // namespace
}  // namespace msprobe::core
