#include "agent/core/transport/stream/throttle.h"

#include <gtest/gtest.h>

namespace msprobe::core {
namespace {

using std::chrono::milliseconds;

const Throttle::Clock::time_point kNow{std::chrono::hours(1)};

TEST(Throttle, WithoutARateNothingWaits) {
  Throttle throttle;
  throttle.Sent(size_t{1} << 30, kNow);
  EXPECT_LT(throttle.until(), kNow);
}

TEST(Throttle, APauseIsInProportionToWhatWasSent) {
  Throttle throttle;
  throttle.SetRate(1'000'000);
  throttle.Sent(500'000, kNow);
  EXPECT_EQ(throttle.until(), kNow + milliseconds(500));
  throttle.Sent(1'000, kNow + milliseconds(500));
  EXPECT_EQ(throttle.until(), kNow + milliseconds(501));
}

TEST(Throttle, AMessageWithoutContentLeavesThePauseAsItIs) {
  Throttle throttle;
  throttle.SetRate(1'000'000);
  throttle.Sent(500'000, kNow);
  throttle.Sent(0, kNow + milliseconds(100));
  EXPECT_EQ(throttle.until(), kNow + milliseconds(500));
}

TEST(Throttle, EndsAtOnceWhereTheServerLiftsIt) {
  Throttle throttle;
  throttle.SetRate(1);
  throttle.Sent(1'000'000, kNow);
  ASSERT_GT(throttle.until(), kNow);
  throttle.SetRate(0);
  EXPECT_LT(throttle.until(), kNow);
}

}  // namespace
}  // namespace msprobe::core
