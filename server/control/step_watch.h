#pragma once

#include <atomic>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/analysis/step_table.h"
#include "server/control/keyed_workers.h"
#include "server/control/watched_tensor.h"
#include "server/ingest/events.h"
#include "server/metrics/metrics.h"
#include "server/query/step_layouts.h"
#include "server/store/store.h"

namespace msprobe::server {

// What dashboards and alerts know of the numbers: looks at steps as they end, on a thread of its own, and counts where
// NaN and infinity began, and shows the statistics that are watched.
//
// 1. A step without NaN, infinity and watched tensors is not read.
// 2. At most kMostWaiting steps wait; the next ones are counted as skipped. Ingest never waits.
// 3. Labels are bounded whatever the model is: at most kMostGroups groups of modules.
// 4. Imported runs are not looked at: nobody is to be woken for them.
class StepWatch : public SessionObserver {
 public:
  static constexpr int kMostWaiting = 256;
  static constexpr size_t kMostGroups = 64;

  // Both are borrowed.
  StepWatch(Store* store, Metrics* metrics, std::vector<WatchedTensor> watched);

  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void OnExportRequested(const std::string&, uint32_t) override {}
  void OnExportAwaited(const std::string&, uint32_t) override {}
  void OnRankKnown(const std::string&, const v1::Rank&, const v1::Rank&) override {}

  // Forgets what waits. Idempotent.
  void Stop() { workers_.Stop(); }
  bool AwaitIdle(absl::Duration timeout) const { return workers_.AwaitIdle(timeout); }

 private:
  using RankOfRun = std::pair<std::string, std::string>;

  // One of the values of the label "result".
  absl::StatusOr<std::string> Look(const std::string& session, uint32_t step);
  void CountOrigins(const StepTable& table, uint32_t step, const RankOfRun& rank);
  void ShowWatched(const StepTable& table, const RankOfRun& rank);
  // The group itself, or "other".
  std::string Bounded(std::string group);

  Store* const store_;
  Metrics* const metrics_;
  const std::vector<WatchedTensor> watched_;
  std::atomic<int> waiting_ = 0;
  // Of the worker alone.
  StepLayouts layouts_;
  std::set<std::string> groups_;
  std::set<RankOfRun> have_first_;
  KeyedWorkers workers_;
};

// "model.layers.*.self_attn" of "model.layers.3.self_attn.q_proj": its first four names, numbers as *. "none" of no
// module.
std::string ModuleGroup(std::string_view module);

}  // namespace msprobe::server
