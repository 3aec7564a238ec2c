#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/metrics/metrics.h"
#include "server/store/store.h"

namespace msprobe::server {

// Limits on what is kept. 0, or an infinite age, means no limit.
struct RetentionOptions {
  absl::Duration age = absl::InfiniteDuration();  // since the run's latest session was opened, by the server's clock
  uint64_t bytes = 0;                             // rows and payloads of all runs together
  uint32_t runs = 0;
  uint64_t run_quota = 0;                     // bytes of one run; a run with more has its agents refused
  absl::Duration period = absl::Seconds(10);  // time between two looks
};

// The facts about a run that retention decides by.
struct KeptRun {
  std::string name;
  uint32_t number = 0;
  absl::Time begun;  // when the latest session was opened, by the server's clock
  uint64_t bytes = 0;
  bool open = false;
  bool pinned = false;
};

// Names of the runs to remove, oldest first. Pinned and open runs count towards the limits but are never removed.
std::vector<std::string> RunsToRemove(std::vector<KeptRun> runs, const RetentionOptions& options, absl::Time now);

// Removes the runs beyond the limits, and gives the space of all deleted runs back to the disk.
//
// 1. A run that is pinned or has an open session is never removed.
// 2. Space of tensors that went with the checks of their calls is given back when kCollectReleased bytes have gone, and
//    every hour.
// 3. The size of a run is known as of the last look. So a run may exceed its quota by what arrives between two looks.
// Threads: one of its own between Start and Stop. Look may be called only without that thread, Admit from any thread.
class Retention {
 public:
  static constexpr uint64_t kCollectReleased = 256 << 20;

  // Both are borrowed.
  Retention(Store* store, Metrics* metrics, RetentionOptions options);
  ~Retention();

  void Start();
  void Stop();

  // ResourceExhausted: the run has reached its quota.
  absl::Status Admit(uint32_t run) const;
  // Takes effect at the next look. `period` does not change.
  void SetLimits(const RetentionOptions& limits);
  // Checks all limits once.
  absl::Status Look();

 private:
  void Loop();
  absl::StatusOr<std::vector<KeptRun>> Runs() const;

  RetentionOptions options() const;

  Store* const store_;
  Metrics* const metrics_;
  uint64_t reclaimed_ = 0;                       // Store::runs_deleted when space was last reclaimed
  absl::Time collected_ = absl::InfinitePast();  // when unused space in segments was last searched for
  uint64_t released_ = 0;                        // Store::bytes_released by then
  mutable absl::Mutex mu_;
  RetentionOptions options_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint32_t, uint64_t> beyond_quota_ ABSL_GUARDED_BY(mu_);  // bytes by run
  std::thread thread_;
};

}  // namespace msprobe::server
