#include "server/monitor/step_watch.h"

#include <fnmatch.h>

#include <memory>
#include <optional>

#include "server/analysis/compare/comparison.h"
#include "server/analysis/divergence/overflow.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/storage/key.h"
#include "server/ingest/session/process_check.h"
#include "server/metrics/log.h"
#include "server/stored/stored_table.h"

namespace msprobe::server {
namespace {

std::string OriginName(Origin origin) {
  switch (origin) {
    case Origin::kComputation:
      return "computation";
    case Origin::kWeight:
      return "weight";
    case Origin::kInput:
      return "input";
  }
  return "";
}

}  // namespace

std::unique_ptr<StepMonitor> MakeStepWatch(const MonitorParts& parts) {
  return parts.scraped ? std::make_unique<StepWatch>(parts.store, parts.metrics, parts.watched) : nullptr;
}

StepWatch::StepWatch(Store* store, Metrics* metrics, std::vector<WatchedTensor> watched)
    : store_(store),
      metrics_(metrics),
      watched_(std::move(watched)),
      layouts_(TableLayouts::kWatchedRows),
      workers_(1) {}

void StepWatch::OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State) {
  if (waiting_.fetch_add(1) >= kMaxWaiting) {
    --waiting_;
    metrics_->Add(Metric::kWatchedSteps, 1, {"skipped"});
    return;
  }
  workers_.Add("", [this, session, step] {
    --waiting_;
    auto result = Look(session, step);
    if (!result.ok()) LogWarning("step {} is not in the metrics of overflow: {}", step, result.status().ToString());
    metrics_->Add(Metric::kWatchedSteps, 1, {result.ok() ? *result : "error"});
  });
}

absl::StatusOr<std::string> StepWatch::Look(const std::string& session, uint32_t step) {
  auto found = store_->database().Find<storage::SessionRow>(SessionKey(session));
  if (!found.ok()) return found.status();
  if (!found->has_value() || IsImport(**found)) return "unread";
  const storage::SessionRow& row = **found;
  const StepKey key{row.run(), RankCode(row.hello().rank()), step, row.epoch()};
  auto summary = store_->database().Find<storage::StepRow>(key.Encode());
  if (!summary.ok()) return summary.status();
  if (!summary->has_value()) return "unread";  // the run was deleted
  const bool overflow = (*summary)->nan_tensors() + (*summary)->inf_tensors() > 0;
  if (!overflow && watched_.empty()) return "unread";
  auto blocks = store_->steps().OpenBlocks(key, **summary);
  if (!blocks.ok()) return blocks.status();
  auto source = ReadStoredTable(*std::move(blocks), {.stacks = false, .construct = true}, layouts_);
  if (!source.ok()) return source.status();
  const StepTable& table = (*source)->table();
  const RankOfRun rank(row.hello().run(), RankName(row.hello().rank()));
  if (overflow) CountOrigins(table, step, rank);
  ShowWatched(table, rank);
  return "read";
}

void StepWatch::CountOrigins(const StepTable& table, uint32_t step, const RankOfRun& rank) {
  const auto& [run, name] = rank;
  const std::vector<OverflowOrigin> origins = FindOverflowOrigins(table);
  if (origins.empty()) return;
  absl::MutexLock lock(&mu_);
  Seen& seen = SeenOf(run);
  for (const OverflowOrigin& origin : origins) {
    std::string group = ModuleGroup(ModuleOf(table.entries[origin.entry]));
    if (seen.groups.size() < kMaxGroups) seen.groups.insert(group);
    if (!seen.groups.contains(group)) group = "other";
    if (origin.nan) metrics_->Add(Metric::kOverflowProducers, 1, {run, name, group, "nan"});
    if (origin.infinity) metrics_->Add(Metric::kOverflowProducers, 1, {run, name, group, "inf"});
    if (!seen.ranks.insert(name).second) continue;
    const std::string kind = origin.nan ? "nan" : "inf";
    metrics_->Set(Metric::kOverflowFirstStep, step, {run, name, group, kind, OriginName(origin.origin)});
  }
}

void StepWatch::ShowWatched(const StepTable& table, const RankOfRun& rank) {
  for (const WatchedTensor& watched : watched_) {
    for (const Row& row : table.rows) {
      if (!row.is_tensor || fnmatch(watched.glob.c_str(), std::string(row.name).c_str(), 0) != 0) continue;
      const std::optional<double> value = StatisticOf(table, row, watched.statistic);
      if (!value) continue;
      metrics_->Set(Metric::kWatched, *value, {rank.first, rank.second, watched.name});
      break;
    }
  }
}

StepWatch::Seen& StepWatch::SeenOf(const std::string& run) {
  auto found = seen_.find(run);
  if (found != seen_.end()) {
    order_.splice(order_.end(), order_, found->second.place);
    return found->second;
  }
  if (seen_.size() >= kMaxRuns) {
    seen_.erase(order_.front());
    order_.pop_front();
  }
  Seen& seen = seen_[run];
  seen.place = order_.insert(order_.end(), run);
  return seen;
}

void StepWatch::Forget(const std::string& run) {
  absl::MutexLock lock(&mu_);
  const auto found = seen_.find(run);
  if (found == seen_.end()) return;
  order_.erase(found->second.place);
  seen_.erase(found);
}

}  // namespace msprobe::server
