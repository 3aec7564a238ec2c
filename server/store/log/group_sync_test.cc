#include "server/store/log/group_sync.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"

namespace msprobe::server {
namespace {

TEST(GroupSync, OneSyncServesAllWhoCameDuringTheLast) {
  absl::Mutex mu;
  int syncs = 0, done = 0;
  bool release = false;
  {
    GroupSync* group = nullptr;
    GroupSync sync(v1::DURABILITY_SYNC, absl::Seconds(1), [&] {
      absl::MutexLock lock(&mu);
      ++syncs;
      mu.Await(absl::Condition(&release));
      return absl::OkStatus();
    });
    group = &sync;
    auto count = [&](const absl::Status&) {
      absl::MutexLock lock(&mu);
      ++done;
    };
    group->Await(count);
    {
      absl::MutexLock lock(&mu);
      auto began = [&] { return syncs == 1; };
      mu.Await(absl::Condition(&began));
    }
    for (int i = 0; i < 100; ++i) group->Await(count);
    absl::MutexLock lock(&mu);
    EXPECT_EQ(done, 0) << "nothing is durable before its sync";
    release = true;
    auto all = [&] { return done == 101; };
    mu.Await(absl::Condition(&all));
    EXPECT_EQ(syncs, 2);
  }
}

TEST(GroupSync, FailureReachesEveryWaiter) {
  absl::Status seen;
  {
    GroupSync(v1::DURABILITY_SYNC, absl::Seconds(1), [] {
      return absl::DataLossError("disk");
    }).Await([&](absl::Status s) { seen = std::move(s); });
  }
  EXPECT_EQ(seen.code(), absl::StatusCode::kDataLoss);
}

TEST(GroupSync, OsNeverSyncsForAWaiter) {
  std::atomic<int> syncs = 0;
  absl::Notification done;
  GroupSync sync(v1::DURABILITY_OS, absl::Seconds(1), [&] {
    ++syncs;
    return absl::OkStatus();
  });
  sync.Await([&](const absl::Status&) { done.Notify(); });
  done.WaitForNotification();
  EXPECT_EQ(syncs, 0);
}

}  // namespace
}  // namespace msprobe::server
