#include "server/monitor/keyed_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace msprobe::server {
namespace {

TEST(KeyedWorkers, KeepsTheOrderOfAKey) {
  absl::Mutex mu;
  std::vector<int> seen;
  KeyedWorkers workers(4);
  for (int i = 0; i < 200; ++i) {
    workers.Add("a", [&, i] {
      absl::MutexLock lock(&mu);
      seen.push_back(i);
    });
  }
  ASSERT_TRUE(workers.AwaitIdle(absl::Seconds(30)));
  absl::MutexLock lock(&mu);
  ASSERT_EQ(seen.size(), 200u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(KeyedWorkers, KeysRunSideBySide) {
  KeyedWorkers workers(2);
  absl::Notification a, b;
  workers.Add("a", [&] { a.Notify(), b.WaitForNotification(); });
  workers.Add("b", [&] { b.Notify(), a.WaitForNotification(); });
  EXPECT_TRUE(workers.AwaitIdle(absl::Seconds(30)));
}

TEST(KeyedWorkers, IsBusyWhileATaskRuns) {
  KeyedWorkers workers(1);
  absl::Notification started, go;
  EXPECT_TRUE(workers.idle());
  workers.Add("a", [&] { started.Notify(), go.WaitForNotification(); });
  started.WaitForNotification();
  EXPECT_FALSE(workers.idle());
  EXPECT_FALSE(workers.AwaitIdle(absl::Milliseconds(1)));
  go.Notify();
  EXPECT_TRUE(workers.AwaitIdle(absl::Seconds(30)));
}

TEST(KeyedWorkers, StoppingFinishesWhatRunsAndForgetsWhatWaits) {
  KeyedWorkers workers(1);
  absl::Notification started, go;
  bool finished = false;
  std::atomic<bool> forgotten = true;
  workers.Add("a", [&] {
    started.Notify();
    go.WaitForNotification();
    finished = true;
  });
  workers.Add("a", [&] { forgotten = false; });
  workers.Add("b", [&] { forgotten = false; });
  started.WaitForNotification();
  std::thread stopping([&] { workers.Stop(); });
  // A task that is added while the workers run is counted; from Stop on it is forgotten.
  for (size_t added = 0; workers.busy_keys() == 2 + added; ++added) workers.Add("c" + std::to_string(added), [] {});
  go.Notify();
  stopping.join();
  EXPECT_TRUE(finished);
  EXPECT_TRUE(forgotten);
}

}  // namespace
}  // namespace msprobe::server
