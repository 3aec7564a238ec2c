#include "server/analysis/series/trend_walk.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/analysis/compare/in_order.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/divergence/overflow_levels.h"
#include "server/analysis/series/tiled_trend.h"

namespace msprobe::server {
namespace {

using Place = StepTables::Place;
using Values = std::vector<std::optional<double>>;

using NameSet = std::set<std::string, std::less<>>;

constexpr absl::Duration kTellEvery = absl::Milliseconds(20);
constexpr DumpReading kNumbers{.stacks = false, .construct = false};

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
      if (absl::Status status = KeepPart(target, stops, trend, part, table); !status.ok()) return status;
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
  absl::Status KeepPart(const StepTables& target, const std::vector<TrendStop>& stops, const TiledTrend& trend,
                        size_t part, const StepTable& table) {
    const std::vector<TiledTrend::Pass>& passes = trend.passes(part);
    const size_t rows = table.rows.size() / passes.size();
    const auto masks = MasksOfSet(target, stops, passes, table);
    if (!masks.ok()) return masks.status();
    for (size_t row = 0; row < rows; ++row) {
      const Row& first = table.rows[row];
      const TrendTensor tensor{stops[passes[0].step].shown(), trend.place(part, row),  first.name,
                               table.text(first.dtype),       table.text(first.shape), trend.entry(part, row)};
      for (size_t i = 0; i < question_.statistics.size(); ++i) {
        if (!sink_.Begin(tensor, i)) continue;
        for (size_t pass = 0; pass < passes.size(); ++pass) {
          const Row& at = table.rows[pass * rows + row];
          const bool masked = ReachesToInfinity(at) && (*masks)->contains(at.name);
          sink_.Point(stops[passes[pass].step].shown().first, passes[pass].token,
                      ValueOf(table, at, masked, question_.statistics[i]), std::nullopt);
        }
      }
    }
    return absl::OkStatus();
  }

  // Down to -inf, and not up to infinity: a mask, or what one was added to, if the step's calls say so.
  bool ReachesToInfinity(const Row& row) const {
    return question_.without_masks && row.is_tensor && row.statistics[0].is_number() && row.statistics[1].is_number() &&
           std::isfinite(row.statistics[0].number()) &&
           row.statistics[1].number() == -std::numeric_limits<double>::infinity();
  }

  // Names of the set's masks of -inf. A part does not have what they were made of, so the first step with one is read
  // whole, and speaks for the set's other passes.
  absl::StatusOr<const NameSet*> MasksOfSet(const StepTables& target, const std::vector<TrendStop>& stops,
                                            const std::vector<TiledTrend::Pass>& passes, const StepTable& table) {
    static const NameSet* const kNobody = new NameSet;
    const auto first =
        std::find_if(table.rows.begin(), table.rows.end(), [this](const Row& row) { return ReachesToInfinity(row); });
    if (first == table.rows.end()) return kNobody;
    const auto [found, fresh] = masks_of_sets_.try_emplace(passes[0].step);
    if (!fresh) return &found->second;
    const auto pass = static_cast<size_t>(first - table.rows.begin()) / (table.rows.size() / passes.size());
    auto step = target.Read(*stops[passes[pass].step].target, kNumbers);
    if (!step.ok()) return step.status();
    const StepTable& whole = (*step)->table();
    const std::vector<bool> masks = MasksOfInfinity(whole);
    for (size_t i = 0; i < masks.size(); ++i) {
      if (masks[i]) found->second.emplace(whole.rows[i].name);
    }
    return &found->second;
  }

  absl::StatusOr<std::vector<Sample>> ReadStop(const StepTables& target, const StepTables* golden,
                                               const TrendStop& stop) {
    if (question_.cancelled()) return Cancelled();
    std::vector<Sample> samples;
    absl::flat_hash_map<std::string, size_t> by_name;
    std::unique_ptr<TableSource> ours;
    if (stop.target) {
      auto read = target.Read(*stop.target, kNumbers);
      if (!read.ok()) return read.status();
      ours = *std::move(read);
      for (const auto& [entry, row, masked] : Wanted(ours->table())) {
        samples.push_back(SampleOf(ours->table(), *entry, *row, masked));
        samples.back().golden.assign(question_.statistics.size(), std::nullopt);
        by_name.emplace(samples.back().name, samples.size() - 1);
      }
    }
    if (!stop.golden) return samples;
    auto step = golden->Read(*stop.golden, kNumbers);
    if (!step.ok()) return step.status();
    if (ours != nullptr) CallAlike(ours->table(), (*step)->mutable_table());
    for (const auto& [entry, row, masked] : Wanted((*step)->table())) {
      Sample sample = SampleOf((*step)->table(), *entry, *row, masked);
      if (const auto found = by_name.find(sample.name); found != by_name.end()) {
        samples[found->second].golden = std::move(sample.values);
        continue;
      }
      sample.golden = std::exchange(sample.values, Values(question_.statistics.size()));
      samples.push_back(std::move(sample));
    }
    return samples;
  }

  // Where the frameworks differ, rows of the golden side take the names of their partners.
  static void CallAlike(const StepTable& target, StepTable& golden) {
    if (!AcrossFrameworks(target, golden)) return;
    for (const auto& [ours, theirs] : MatchRows(target, golden, {}, false).pairs) {
      if (theirs == kNoRow) continue;
      golden.rows[static_cast<size_t>(theirs)].name = golden.arena.Add(target.rows[static_cast<size_t>(ours)].name);
    }
    golden.layout = nullptr;
  }

  struct WantedRow {
    const Entry* entry;
    const Row* row;
    bool masked;  // a mask of -inf
  };
  std::vector<WantedRow> Wanted(const StepTable& table) {
    const std::shared_ptr<const std::vector<bool>> known = KnownChoice(table);
    auto made = std::make_shared<std::vector<bool>>();
    std::vector<WantedRow> wanted;
    std::vector<bool> masks;
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
        if (!is_wanted) continue;
        const bool asked = ReachesToInfinity(row);
        if (asked && masks.empty()) masks = MasksOfInfinity(table);
        wanted.push_back({&entry, &row, asked && masks[i]});
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

  std::optional<double> ValueOf(const StepTable& table, const Row& row, bool masked, Statistic statistic) const {
    if (masked) return std::nullopt;
    if (question_.without_masks && row.is_tensor && row.statistics[0].is_number() && row.statistics[1].is_number() &&
        HoldsMask(table.text(row.dtype), row.statistics[1].number(), row.statistics[0].number())) {
      return std::nullopt;
    }
    return StatisticOf(table, row, statistic);
  }

  Sample SampleOf(const StepTable& table, const Entry& entry, const Row& row, bool masked) const {
    Sample sample;
    sample.name = std::string(row.name);
    sample.dtype = std::string(table.text(row.dtype));
    sample.shape = std::string(table.text(row.shape));
    sample.record = std::string(entry.name);
    sample.parent = std::string(entry.parent);
    sample.token = entry.token;
    for (Statistic statistic : question_.statistics) sample.values.push_back(ValueOf(table, row, masked, statistic));
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
  std::map<size_t, NameSet> masks_of_sets_;                                // by the set's first step
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
