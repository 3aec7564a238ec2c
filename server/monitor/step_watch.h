#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/analysis/table/step_table.h"
#include "server/analysis/table/table_layouts.h"
#include "server/metrics/metrics.h"
#include "server/monitor/keyed_workers.h"
#include "server/monitor/step_monitors.h"
#include "server/monitor/watched_tensor.h"
#include "server/store/store.h"

namespace msprobe::server {

// Gives dashboards and alerts the numbers of steps: it reads steps when they end, on a thread of its own, counts where
// NaN and infinity began, and shows the watched statistics.
//
// 1. A step with no NaN and no infinity is not read, unless tensors are watched.
// 2. At most kMaxWaiting steps wait; further steps are counted as skipped. Ingest never waits.
// 3. The number of labels is bounded: each run has at most kMaxGroups groups of modules. The kMaxRuns latest runs with
//    overflow are remembered. If an older one overflows again, that step counts as its first.
// 4. Imported runs are ignored, because nobody is to be woken for them.
// Threads: any.
class StepWatch : public StepMonitor {
 public:
  static constexpr int kMaxWaiting = 256;
  static constexpr size_t kMaxGroups = 64;
  static constexpr size_t kMaxRuns = 10'000;

  // Both are borrowed.
  StepWatch(Store* store, Metrics* metrics, std::vector<WatchedTensor> watched);

  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void Forget(const std::string& run) override;
  void Stop() override { workers_.Stop(); }
  bool AwaitIdle(absl::Duration timeout) const { return workers_.AwaitIdle(timeout); }

 private:
  using RankOfRun = std::pair<std::string, std::string>;

  // A run that has overflow.
  struct Seen {
    std::set<std::string> groups;
    std::set<std::string> ranks;             // ranks whose first step is shown
    std::list<std::string>::iterator place;  // in order_
  };

  // Returns a value of the label "result".
  absl::StatusOr<std::string> Look(const std::string& session, uint32_t step);
  void CountOrigins(const StepTable& table, uint32_t step, const RankOfRun& rank);
  void ShowWatched(const StepTable& table, const RankOfRun& rank);
  // Forgets the run with the oldest overflow to make room for a new run.
  Seen& SeenOf(const std::string& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Store* const store_;
  Metrics* const metrics_;
  const std::vector<WatchedTensor> watched_;
  std::atomic<int> waiting_ = 0;
  TableLayouts layouts_;  // used by the worker thread alone
  absl::Mutex mu_;
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mu_);  // by run
  std::list<std::string> order_ ABSL_GUARDED_BY(mu_);      // runs by their last overflow, the latest at the end
  KeyedWorkers workers_;
};

// Returns null if nobody reads the metrics.
std::unique_ptr<StepMonitor> MakeStepWatch(const MonitorParts& parts);

}  // namespace msprobe::server
