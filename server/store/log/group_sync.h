#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::server {

// Group commit without a timer: everything that came while one sync ran waits for the next one.
//
// 1. With DURABILITY_SYNC a callback runs after a sync that began after Await was called. With DURABILITY_INTERVAL,
//    where a sync runs every `interval`, and with DURABILITY_OS, where none runs, callbacks do not wait for a sync.
// 2. Callbacks run in order, on the thread of this object. They must not block for long. They may call Await.
// 3. Destruction syncs once more and runs the callbacks that wait.
class GroupSync {
 public:
  using Callback = std::function<void(absl::Status)>;

  GroupSync(v1::Durability durability, absl::Duration interval, std::function<absl::Status()> sync);
  ~GroupSync();

  void Await(Callback callback) ABSL_LOCKS_EXCLUDED(mu_);

  struct Counters {
    uint64_t syncs = 0;
    absl::Duration busy;   // time that these syncs took
    uint64_t waiting = 0;  // callbacks, including those of the sync under way
    absl::Duration lag;    // how long the oldest callback has waited
  };
  Counters counters() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);

  const v1::Durability durability_;
  const absl::Duration interval_;
  const std::function<absl::Status()> sync_;

  mutable absl::Mutex mu_;
  std::vector<Callback> waiting_ ABSL_GUARDED_BY(mu_);
  absl::Time waiting_since_ ABSL_GUARDED_BY(mu_);    // the first of them
  absl::Time under_way_since_ ABSL_GUARDED_BY(mu_);  // the first of those that the loop has taken
  Counters counters_ ABSL_GUARDED_BY(mu_);           // waiting: taken by the loop; lag: unused
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace msprobe::server
