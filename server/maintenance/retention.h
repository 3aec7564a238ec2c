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

// How much is kept. A limit of 0 (or an infinite age) is none.
struct RetentionOptions {
  absl::Duration age = absl::InfiniteDuration();  // since the run's latest session was opened, by the server's clock
  uint64_t bytes = 0;                             // of all runs together: rows and payloads
  uint32_t runs = 0;
  uint64_t run_quota = 0;                     // bytes of one run; beyond, its agents are refused
  absl::Duration period = absl::Seconds(10);  // between two looks
};

// A run as retention sees it.
struct KeptRun {
  std::string name;
  uint32_t number = 0;
  absl::Time begun;  // its latest session was opened, by the server's clock
  uint64_t bytes = 0;
  bool open = false;
  bool pinned = false;
};

// Names of the runs to remove, oldest first. Pinned and open runs count towards the limits and are never removed.
std::vector<std::string> RunsToRemove(std::vector<KeptRun> runs, const RetentionOptions& options, absl::Time now);

// Removes what is beyond the limits, and gives the disk what was deleted, by whomever.
//
// 1. A run with an open session is never removed; nor is one that is pinned.
// 2. What a run takes is known as of the last look: a quota is exceeded by what comes between two looks.
// Threads: one of its own between Start and Stop; Look only where there is none. Admit from any.
class Retention {
 public:
  // Both are borrowed.
  Retention(Store* store, Metrics* metrics, RetentionOptions options);
  ~Retention();

  void Start();
  void Stop();

  // ResourceExhausted: the run has reached its quota.
  absl::Status Admit(uint32_t run) const;
  // Holds from the next look on; `period` stays as it was.
  void SetLimits(const RetentionOptions& limits);
  // Everything there is to do now.
  absl::Status Look();

 private:
  void Loop();
  absl::StatusOr<std::vector<KeptRun>> Runs() const;

  Store* const store_;
  Metrics* const metrics_;
  RetentionOptions options() const;

  uint64_t reclaimed_ = 0;                       // Store::runs_deleted when space was last reclaimed
  absl::Time collected_ = absl::InfinitePast();  // when segments were looked through last
  mutable absl::Mutex mu_;
  RetentionOptions options_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint32_t, uint64_t> beyond_quota_ ABSL_GUARDED_BY(mu_);  // bytes by run
  std::thread thread_;
};

}  // namespace msprobe::server
