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

// What dashboards and alerts know of the numbers: looks at steps as they end, on a thread of its own, and counts where
// NaN and infinity began, and shows the statistics that are watched.
//
// 1. A step without NaN, infinity and watched tensors is not read.
// 2. At most kMaxWaiting steps wait; the next ones are counted as skipped. Ingest never waits.
// 3. Labels are bounded whatever the model is: at most kMaxGroups groups of modules of each run. Of runs that have
//    overflow, the kMaxRuns latest are known; what an earlier one still brings is taken for its beginning.
// 4. Imported runs are not looked at: nobody is to be woken for them.
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

  // One of the values of the label "result".
  absl::StatusOr<std::string> Look(const std::string& session, uint32_t step);
  void CountOrigins(const StepTable& table, uint32_t step, const RankOfRun& rank);
  void ShowWatched(const StepTable& table, const RankOfRun& rank);
  Store* const store_;
  Metrics* const metrics_;
  const std::vector<WatchedTensor> watched_;
  std::atomic<int> waiting_ = 0;
  TableLayouts layouts_;  // of the worker alone
  // What is known of a run that has overflow.
  struct Seen {
    std::set<std::string> groups;
    std::set<std::string> ranks;  // whose first step is shown
    std::list<std::string>::iterator place;
  };
  // Makes place for a run that is new.
  Seen& SeenOf(const std::string& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mu_);  // by run
  std::list<std::string> order_ ABSL_GUARDED_BY(mu_);      // of their last overflow, the latest last
  KeyedWorkers workers_;
};

// Null where nobody reads the metrics.
std::unique_ptr<StepMonitor> MakeStepWatch(const MonitorParts& parts);

}  // namespace msprobe::server
