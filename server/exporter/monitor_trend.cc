#include "server/exporter/monitor_trend.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_replace.h"

namespace msprobe::server {
namespace {

// The place of each step on an axis that counts micro steps.
using FirstOfStep = std::map<uint32_t, uint32_t>;

absl::StatusOr<FirstOfStep> CountMicroSteps(const MonitorFiles& files,
                                            absl::FunctionRef<bool(uint32_t step, uint32_t rank)> wanted) {
  FirstOfStep steps;  // how many micro steps each has
  absl::Status status = files.ForEachRow(
      [&](const MonitorRow& row) {
        if (wanted(row.step, row.rank)) {
          uint32_t& count = steps[row.step];
          count = std::max(count, row.micro_step + 1);
        }
        return absl::OkStatus();
      },
      [](const std::string&) {});
  if (!status.ok()) return status;
  uint32_t first = 0;
  for (auto& [step, count] : steps) first += std::exchange(count, first);
  return steps;
}

}  // namespace

absl::Status WriteMonitorTrend(const MonitorFiles& files, std::string path, const TrendOptions& options,
                               absl::FunctionRef<bool(uint32_t step, uint32_t rank)> wanted,
                               absl::FunctionRef<void(const std::string& warning)> warn) {
  std::vector<TrendDatabase::Metric> metrics;
  std::vector<size_t> place(std::size(MonitorFiles::kMetrics));
  for (size_t i = 0; i < std::size(MonitorFiles::kMetrics); ++i) {
    place[i] = metrics.size();
    const std::vector<std::string>& statistics = files.statistics_of_metrics()[i];
    if (!statistics.empty()) metrics.push_back({std::string(MonitorFiles::kMetrics[i]), statistics});
  }
  if (metrics.empty()) {
    return absl::InvalidArgumentError(
        "the files of the training monitor have no column of a statistic that is known, or are empty");
  }
  auto database = TrendDatabase::Create(std::move(path), std::move(metrics), files.statistics());
  if (!database.ok()) return database.status();
  FirstOfStep first_of_step;
  if (options.micro_steps) {
    auto counted = CountMicroSteps(files, wanted);
    if (!counted.ok()) return counted.status();
    first_of_step = *std::move(counted);
  }
  absl::flat_hash_set<std::pair<int64_t, size_t>> tagged;  // target, metric
  TrendTarget target;
  absl::Status status = files.ForEachRow(
      [&](const MonitorRow& row) {
        if (!wanted(row.step, row.rank) || files.statistics_of_metrics()[row.metric].empty()) return absl::OkStatus();
        target.name.assign(row.name);
        for (const auto& [from, to] : options.renames) absl::StrReplaceAll({{from, to}}, &target.name);
        target.vpp_stage = row.vpp_stage;
        target.micro_step = options.micro_steps ? 0 : row.micro_step;
        const uint32_t step = options.micro_steps ? first_of_step[row.step] + row.micro_step : row.step;
        auto number = (*database)->Number(target);
        if (!number.ok()) return number.status();
        const size_t metric = place[row.metric];
        if (tagged.emplace(*number, metric).second) {
          absl::Status added = (*database)->AddTags(*number, metric, TagsOfWatched(target.name));
          if (!added.ok()) return added;
        }
        return (*database)->AddValues(row.rank, step, *number, metric, row.values);
      },
      warn);
  if (!status.ok()) return status;
  if ((*database)->rows() == 0) {
    return absl::InvalidArgumentError("the files of the training monitor have no row of these steps and ranks");
  }
  return (*database)->Finish();
}

}  // namespace msprobe::server
