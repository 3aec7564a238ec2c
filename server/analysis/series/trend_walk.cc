#include "server/analysis/series/trend_walk.h"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/analysis/compare/in_order.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/series/tiled_trend.h"

namespace msprobe::server {
namespace {

using Place = StepTables::Place;
using Values = std::vector<std::optional<double>>;

constexpr absl::Duration kTellEvery = absl::Milliseconds(20);

// What one step says of one tensor.
struct Sample {
  std::string name;
  std::string dtype;
  std::string shape;
  std::string record;
  std::string parent;
  uint32_t token = 0;
  Values values;  // by statistic asked for
  Values golden;
};

absl::Status Cancelled() { return absl::CancelledError("the walk was cancelled"); }

class TrendWalk {
 public:
  // Everything given outlives it.
  TrendWalk(const TrendQuestion& question, TrendSink& sink) : question_(question), sink_(sink) {}

  absl::Status Run(const StepTables& target, const StepTables* golden, std::vector<TrendStop> stops) {
    total_ = stops.size();
    if (golden == nullptr && target.tiles() != nullptr) {
      if (absl::Status status = ReadTiles(target, stops); !status.ok()) return status;
    }
    const auto read = [&](size_t index) { return ReadStop(target, golden, stops[index]); };
    const auto take = [&](size_t index, std::vector<Sample> samples) -> absl::StatusOr<bool> {
      for (size_t i = 0; i < samples.size(); ++i) Keep(stops[index].shown(), i, samples[i]);
      return Progress(1);
    };
    return InOrder<std::vector<Sample>>::Run(stops.size(), question_.threads, read, take);
  }

 private:
  // The rows of a layout that are wanted.
  struct Choice {
    std::shared_ptr<const std::vector<bool>> rows;
    std::shared_ptr<const void> layout;  // held so that its address stays its own
  };

  // Takes from `stops` what it has read.
  absl::Status ReadTiles(const StepTables& target, std::vector<TrendStop>& stops) {
    // Steps of other servers are read step by step.
    const auto elsewhere = std::stable_partition(
        stops.begin(), stops.end(), [&](const TrendStop& stop) { return target.FindStored(stop.shown()).has_value(); });
    std::vector<TileSource::Step> steps;
    for (auto stop = stops.begin(); stop != elsewhere; ++stop) steps.push_back(*target.FindStored(stop->shown()));
    if (steps.empty()) return absl::OkStatus();
    auto tiled = TiledTrend::Make(*target.tiles(), steps, question_.name_glob);
    if (!tiled.ok()) return tiled.status();
    const TiledTrend& trend = **tiled;
    const auto read = [&](size_t part) -> absl::StatusOr<StepTable> {
      if (question_.cancelled()) return Cancelled();
      return trend.Read(part);
    };
    const auto take = [&](size_t part, const StepTable& table) -> absl::StatusOr<bool> {
      KeepPart(stops, trend, part, table);
      return Progress(trend.last_of_its_set(part) ? trend.passes(part).size() : 0);
    };
    absl::Status status = InOrder<StepTable>::Run(trend.parts(), question_.threads, read, take);
    std::vector<TrendStop> rest;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (i >= steps.size() || !trend.taken()[i]) rest.push_back(stops[i]);
    }
    stops = std::move(rest);
    done_ = total_ - stops.size();
    return status;
  }

  // Rows of one set: all of its passes have the same tensors in the same order.
  void KeepPart(const std::vector<TrendStop>& stops, const TiledTrend& trend, size_t part, const StepTable& table) {
    const std::vector<TiledTrend::Pass>& passes = trend.passes(part);
    const size_t rows = table.rows.size() / passes.size();
    for (size_t row = 0; row < rows; ++row) {
      const Row& first = table.rows[row];
      const TrendTensor tensor{stops[passes[0].step].shown(), trend.place(part, row),  first.name,
                               table.text(first.dtype),       table.text(first.shape), trend.entry(part, row)};
      for (size_t i = 0; i < question_.statistics.size(); ++i) {
        if (!sink_.Begin(tensor, i)) continue;
        for (size_t pass = 0; pass < passes.size(); ++pass) {
          const Row& at = table.rows[pass * rows + row];
          sink_.Point(stops[passes[pass].step].shown().first, passes[pass].token,
                      ValueOf(table, at, question_.statistics[i]), std::nullopt);
        }
      }
    }
  }

  absl::StatusOr<std::vector<Sample>> ReadStop(const StepTables& target, const StepTables* golden,
                                               const TrendStop& stop) {
    if (question_.cancelled()) return Cancelled();
    constexpr DumpReading kNumbers{.stacks = false, .construct = false};
    std::vector<Sample> samples;
    absl::flat_hash_map<std::string, size_t> by_name;
    if (stop.target) {
      auto step = target.Read(*stop.target, kNumbers);
      if (!step.ok()) return step.status();
      for (const auto& [entry, row] : Wanted((*step)->table())) {
        samples.push_back(SampleOf((*step)->table(), *entry, *row));
        samples.back().golden.assign(question_.statistics.size(), std::nullopt);
        by_name.emplace(samples.back().name, samples.size() - 1);
      }
    }
    if (!stop.golden) return samples;
    auto step = golden->Read(*stop.golden, kNumbers);
    if (!step.ok()) return step.status();
    for (const auto& [entry, row] : Wanted((*step)->table())) {
      Sample sample = SampleOf((*step)->table(), *entry, *row);
      if (const auto found = by_name.find(sample.name); found != by_name.end()) {
        samples[found->second].golden = std::move(sample.values);
        continue;
      }
      sample.golden = std::exchange(sample.values, Values(question_.statistics.size()));
      samples.push_back(std::move(sample));
    }
    return samples;
  }

  std::vector<std::pair<const Entry*, const Row*>> Wanted(const StepTable& table) {
    const std::shared_ptr<const std::vector<bool>> known = KnownChoice(table);
    auto made = std::make_shared<std::vector<bool>>();
    std::vector<std::pair<const Entry*, const Row*>> wanted;
    if (known == nullptr) made->resize(table.rows.size());
    for (const Entry& entry : table.entries) {
      for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
        const Row& row = table.rows[i];
        bool is_wanted = false;
        if (known != nullptr) {
          is_wanted = (*known)[i];
        } else {
          is_wanted = HasStatistics(row) && fnmatch(question_.name_glob.c_str(), std::string(row.name).c_str(), 0) == 0;
          (*made)[i] = is_wanted;
        }
        if (is_wanted) wanted.emplace_back(&entry, &row);
      }
    }
    if (known == nullptr && table.layout != nullptr) {
      absl::MutexLock lock(&mu_);
      choices_.emplace(table.layout, Choice{std::move(made), table.borrowed});
    }
    return wanted;
  }

  std::shared_ptr<const std::vector<bool>> KnownChoice(const StepTable& table) {
    if (table.layout == nullptr) return nullptr;
    absl::MutexLock lock(&mu_);
    const auto found = choices_.find(table.layout);
    return found == choices_.end() ? nullptr : found->second.rows;
  }

  std::optional<double> ValueOf(const StepTable& table, const Row& row, Statistic statistic) const {
    if (question_.without_masks && row.is_tensor && row.statistics[0].is_number() && row.statistics[1].is_number() &&
        HoldsMask(table.text(row.dtype), row.statistics[1].number(), row.statistics[0].number())) {
      return std::nullopt;
    }
    return StatisticOf(table, row, statistic);
  }

  Sample SampleOf(const StepTable& table, const Entry& entry, const Row& row) const {
    Sample sample;
    sample.name = std::string(row.name);
    sample.dtype = std::string(table.text(row.dtype));
    sample.shape = std::string(table.text(row.shape));
    sample.record = std::string(entry.name);
    sample.parent = std::string(entry.parent);
    sample.token = entry.token;
    for (Statistic statistic : question_.statistics) sample.values.push_back(ValueOf(table, row, statistic));
    return sample;
  }

  void Keep(const Place& place, size_t row, const Sample& sample) {
    Entry entry;
    entry.name = sample.record;
    entry.parent = sample.parent;
    entry.token = sample.token;
    const TrendTensor tensor{place, row, sample.name, sample.dtype, sample.shape, entry};
    for (size_t i = 0; i < question_.statistics.size(); ++i) {
      if (sink_.Begin(tensor, i)) sink_.Point(place.first, sample.token, sample.values[i], sample.golden[i]);
    }
  }

  absl::StatusOr<bool> Progress(size_t steps) {
    done_ += steps;
    const absl::Time now = absl::Now();
    if (now - told_ < kTellEvery && done_ != total_) return true;
    told_ = now;
    if (!sink_.Progress(done_, total_)) return Cancelled();
    return true;
  }

  const TrendQuestion& question_;
  TrendSink& sink_;
  absl::Mutex mu_;
  absl::flat_hash_map<const void*, Choice> choices_ ABSL_GUARDED_BY(mu_);  // by StepTable.layout
  size_t done_ = 0;
  size_t total_ = 0;
  absl::Time told_ = absl::InfinitePast();
};

}  // namespace

absl::Status WalkTrend(const TrendQuestion& question, const StepTables& target, const StepTables* golden,
                       std::vector<TrendStop> stops, TrendSink& sink) {
  return TrendWalk(question, sink).Run(target, golden, std::move(stops));
}

}  // namespace msprobe::server
