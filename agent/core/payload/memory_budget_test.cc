#include "agent/core/payload/memory_budget.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using Outcome = MemoryBudget::Outcome;

TEST(MemoryBudgetTest, DropsAtTheCeilingUntilThreeQuartersAreLeft) {
  MemoryBudget budget(100, LossPolicy::kDrop, absl::Seconds(30), nullptr);
  EXPECT_EQ(budget.Acquire(101), Outcome::kTooLarge);
  EXPECT_EQ(budget.Acquire(90), Outcome::kGranted);
  EXPECT_EQ(budget.Acquire(11), Outcome::kDropped);
  EXPECT_EQ(budget.Acquire(1), Outcome::kDropped);  // fits, but the shortage goes on
  budget.Release(14);
  EXPECT_EQ(budget.Acquire(1), Outcome::kDropped);  // 76 used
  budget.Release(1);
  EXPECT_EQ(budget.Acquire(25), Outcome::kGranted);
  EXPECT_EQ(budget.used(), 100);
}

TEST(MemoryBudgetTest, AStallIsBoundedInAllAndThenDrops) {
  std::atomic<int> shortages{0};
  MemoryBudget budget(100, LossPolicy::kStall, absl::Milliseconds(100), [&] { ++shortages; });
  EXPECT_EQ(budget.Acquire(100), Outcome::kGranted);
  const absl::Time began = absl::Now();
  EXPECT_EQ(budget.Acquire(10), Outcome::kExpired);
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(100));
  EXPECT_EQ(shortages, 1);
  const absl::Time again = absl::Now();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(budget.Acquire(10), Outcome::kExpired);
  EXPECT_LT(absl::Now() - again, absl::Seconds(10));  // 1000 bounds would be 100 s
  budget.Release(100);
  EXPECT_EQ(budget.Acquire(100), Outcome::kGranted);
  const absl::Time next = absl::Now();
  EXPECT_EQ(budget.Acquire(10), Outcome::kExpired);  // a new shortage has its own bound
  EXPECT_GE(absl::Now() - next, absl::Milliseconds(100));
}

// Producers are twice as fast as the server: every step waits, and all together wait for longer than the bound.
TEST(MemoryBudgetTest, AnOverloadThatLastsSlowsStepsDownAndDropsNothing) {
  constexpr absl::Duration kBound = absl::Seconds(1);
  constexpr absl::Duration kTaking = absl::Milliseconds(20);
  MemoryBudget budget(100, LossPolicy::kStall, kBound, nullptr);
  EXPECT_EQ(budget.Acquire(100), Outcome::kGranted);
  std::atomic<bool> done{false};
  std::thread taking([&] {
    while (!done) {
      absl::SleepFor(kTaking);  // a server that takes this fast
      if (budget.used() >= 10) budget.Release(10);
    }
  });
  absl::Duration held;
  while (held < 2 * kBound) {
    const absl::Time began = absl::Now();
    for (int record = 0; record < 3; ++record) ASSERT_EQ(budget.Acquire(10), Outcome::kGranted) << held;
    held += absl::Now() - began;
    budget.NextStep();
  }
  done = true;
  taking.join();
  // Now the server takes nothing: one step waits, and later steps do not.
  while (budget.Acquire(10) == Outcome::kGranted) {
  }
  const absl::Time began = absl::Now();
  for (int step = 0; step < 100; ++step) {
    budget.NextStep();
    EXPECT_EQ(budget.Acquire(10), Outcome::kExpired);
  }
  EXPECT_LT(absl::Now() - began, 50 * kBound);  // it would be 100 bounds if each waited
}

TEST(MemoryBudgetTest, AReleaseEndsAStall) {
  MemoryBudget budget(100, LossPolicy::kSpool, absl::Minutes(10), nullptr);
  EXPECT_EQ(budget.Acquire(100), Outcome::kGranted);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(budget.Acquire(25), Outcome::kGranted); });
  }
  for (int i = 0; i < 4; ++i) budget.Release(25);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used(), 100);
}

TEST(MemoryBudgetTest, NobodyWaitsAfterStopWaiting) {
  MemoryBudget budget(100, LossPolicy::kStall, absl::InfiniteDuration(), nullptr);
  EXPECT_EQ(budget.Acquire(100), Outcome::kGranted);
  std::thread waiting([&] { EXPECT_EQ(budget.Acquire(1), Outcome::kExpired); });
  budget.StopWaiting();
  waiting.join();
}

TEST(MemoryBudgetTest, ManyThreadsNeverExceedTheCeiling) {
  MemoryBudget budget(1000, LossPolicy::kStall, absl::Minutes(10), nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        ASSERT_EQ(budget.Acquire(300), Outcome::kGranted);
        budget.Release(300);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used(), 0);
}

}  // namespace
}  // namespace msprobe::core
