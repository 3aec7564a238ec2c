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

// Group commit without a timer: a group is what came while the last sync ran.
//
// 1. A callback given to Await runs after a sync that began after Await was called (DURABILITY_SYNC), or without one
//    (DURABILITY_INTERVAL, which syncs every `interval` of its own accord, and DURABILITY_OS, which never does).
// 2. Callbacks run on the thread of this object, in order; they must not block for long and may call Await.
// 3. Destruction runs what is waiting, after a last sync.
class GroupSync {
 public:
  using Callback = std::function<void(absl::Status)>;

  GroupSync(v1::Durability durability, absl::Duration interval, std::function<absl::Status()> sync);
  ~GroupSync();

  void Await(Callback callback) ABSL_LOCKS_EXCLUDED(mu_);

  struct Counters {
    uint64_t syncs = 0;
    absl::Duration busy;   // in these
    uint64_t waiting = 0;  // callbacks, those of the sync under way included
    absl::Duration lag;    // how long the oldest of them has waited
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
