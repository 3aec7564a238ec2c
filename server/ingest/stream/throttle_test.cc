#include "server/ingest/stream/throttle.h"

#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

constexpr uint64_t kLimit = 1000;

TEST(ThrottleTest, NothingIsSaidWhileThereIsRoom) {
  Throttle throttle(kLimit);
  EXPECT_EQ(throttle.Look(0, 10), 0u);
  EXPECT_EQ(throttle.Look(740, 10), 0u);
}

TEST(ThrottleTest, SlowsDownAsLongAsMemoryIsShort) {
  Throttle throttle(kLimit);
  EXPECT_EQ(throttle.Look(800, 4), Throttle::kFirst / 4);
  EXPECT_LT(throttle.Look(800, 4), Throttle::kFirst / 4);
  const uint64_t before = throttle.Look(800, 4);
  EXPECT_EQ(throttle.Look(600, 4), before) << "between one half and three quarters it stays as it is";
}

TEST(ThrottleTest, NeverStopsAStream) {
  Throttle throttle(kLimit);
  for (int i = 0; i < 100; ++i) EXPECT_GE(throttle.Look(1000, 5000), Throttle::kMinOfAStream);
}

TEST(ThrottleTest, LetsGoWhenThereIsRoomAgain) {
  Throttle throttle(kLimit);
  for (int i = 0; i < 10; ++i) throttle.Look(900, 2);
  uint64_t last = throttle.Look(900, 2);
  int looks = 0;
  for (uint64_t now = last; now != 0; now = throttle.Look(100, 2), ++looks) EXPECT_GE(now, last);
  EXPECT_GT(looks, 2) << "step by step";
  EXPECT_LT(looks, 40);
}

}  // namespace
}  // namespace msprobe::server
