#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "server/analysis/in_order.h"
#include "server/analysis/statistic.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/step_sources.h"
#include "server/query/tiled_trend.h"

namespace msprobe::server {
namespace {

using Place = AnalysisSource::Place;

constexpr uint32_t kDefaultLimit = 1000;
constexpr int kPointsAMessage = 20'000;
constexpr absl::Duration kTellEvery = absl::Milliseconds(20);
const double kNone = std::numeric_limits<double>::quiet_NaN();

// A step of one side or of both.
struct Stop {
  std::optional<Place> target;
  std::optional<Place> golden;
  const Place& shown() const { return target ? *target : *golden; }
};

// What one step says of one tensor.
struct Sample {
  std::string name;
  std::string dtype;
  std::string shape;
  uint32_t token = 0;
  std::vector<double> values;  // by statistic asked for
  std::vector<double> golden;
};

class Trends {
 public:
  Trends(const AnalysisContext& context, const v1::TrendRequest& request, const std::function<bool()>& cancelled,
         const Send<v1::TrendResponse>& send)
      : context_(context), request_(request), cancelled_(cancelled), send_(send) {
    for (int statistic : request.statistics()) statistics_.push_back(static_cast<Statistic>(statistic));
    if (statistics_.empty()) statistics_.push_back(Statistic::kNorm);
  }

  absl::Status Run() {
    for (Statistic statistic : statistics_) {
      if (static_cast<int>(statistic) < 1 || static_cast<int>(statistic) > kStatistics) {
        return absl::InvalidArgumentError(
            Cat("statistics: ", static_cast<int>(statistic), " is none; known are 1 to ", kStatistics));
      }
    }
    if (request_.scope().name_glob().empty()) {
      return absl::InvalidArgumentError(
          "scope.name_glob is empty: name the tensors, e.g. Functional.linear.*.output.0");
    }
    auto target = AnalysisSource::Open(request_.source(), context_);
    if (!target.ok()) return target.status();
    std::optional<AnalysisSource> golden;
    if (request_.has_golden()) {
      auto opened = AnalysisSource::Open(request_.golden(), context_);
      if (!opened.ok()) return opened.status();
      golden = *std::move(opened);
    }
    auto stops = StopsOf(*target, golden);
    if (!stops.ok()) return stops.status();
    total_ = stops->size();
    if (!golden) {
      if (absl::Status status = ReadTiles(*target, *stops); !status.ok()) return status;
    }
    const auto read = [&](size_t index) { return ReadStop(*target, golden, (*stops)[index]); };
    const auto take = [&](size_t index, std::vector<Sample> samples) -> absl::StatusOr<bool> {
      for (size_t i = 0; i < samples.size(); ++i) Keep((*stops)[index].shown(), i, std::move(samples[i]));
      return Progress(1);
    };
    absl::Status status = InOrder<std::vector<Sample>>::Run(stops->size(), context_.threads, read, take);
    return status.ok() ? SendSeries() : status;
  }

 private:
  struct Series {
    v1::TrendSeries message;          // its head
    std::tuple<Place, size_t> first;  // where it was seen first: step and rank, row
    std::vector<std::tuple<uint32_t, uint32_t, double, double>> points;
  };

  // Takes from the stops those that it answers from their tiles.
  absl::Status ReadTiles(const AnalysisSource& target, std::vector<Stop>& stops) {
    // Those of other servers are read step by step.
    const auto elsewhere = std::stable_partition(
        stops.begin(), stops.end(), [&](const Stop& stop) { return target.FindStored(stop.shown()) != nullptr; });
    std::vector<TiledTrend::Step> steps;
    for (auto stop = stops.begin(); stop != elsewhere; ++stop) {
      const AnalysisSource::Stored& stored = *target.FindStored(stop->shown());
      steps.push_back({stored.key, stored.blocks});
    }
    if (steps.empty()) return absl::OkStatus();
    auto tiled = TiledTrend::Make(context_, steps, request_.scope().name_glob());
    if (!tiled.ok()) return tiled.status();
    const TiledTrend& trend = **tiled;
    const auto read = [&](size_t part) -> absl::StatusOr<StepTable> {
      if (cancelled_()) return PeerGone();
      return trend.Read(part);
    };
    const auto take = [&](size_t part, const StepTable& table) -> absl::StatusOr<bool> {
      KeepPart(stops, trend.passes(part), table);
      return Progress(trend.passes(part).size());
    };
    absl::Status status = InOrder<StepTable>::Run(trend.parts(), context_.threads, read, take);
    std::vector<Stop> rest;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (i >= steps.size() || !trend.taken()[i]) rest.push_back(stops[i]);
    }
    stops = std::move(rest);
    done_ = total_ - stops.size();
    return status;
  }

  // Rows of one set: all of its passes have the same tensors in the same order.
  void KeepPart(const std::vector<Stop>& stops, const std::vector<TiledTrend::Pass>& passes, const StepTable& table) {
    const size_t rows = table.rows.size() / passes.size();
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < statistics_.size(); ++i) {
        Series* series = nullptr;
        for (size_t pass = 0; pass < passes.size(); ++pass) {
          const Row& at = table.rows[pass * rows + row];
          const Place& place = stops[passes[pass].step].shown();
          if (pass == 0) {
            series = SeriesOf(place, row, i, std::string(at.name), table.text(at.dtype), table.text(at.shape));
            if (series == nullptr) break;
          }
          series->points.emplace_back(place.first, passes[pass].token,
                                      StatisticOf(table, at, statistics_[i]).value_or(kNone), kNone);
        }
      }
    }
  }

  absl::StatusOr<bool> Progress(size_t steps) {
    done_ += steps;
    const absl::Time now = absl::Now();
    if (now - told_ < kTellEvery && done_ != total_) return true;
    told_ = now;
    v1::TrendResponse response;
    response.mutable_progress()->set_steps_done(done_);
    response.mutable_progress()->set_steps_total(total_);
    if (!send_(response)) return PeerGone();
    return true;
  }

  absl::StatusOr<std::vector<Stop>> StopsOf(const AnalysisSource& target, const std::optional<AnalysisSource>& golden) {
    std::vector<Stop> stops;
    if (!golden) {
      auto places = PlacesIn(target, request_.scope());
      if (!places.ok()) return places.status();
      for (const Place& place : *places) stops.push_back({place, std::nullopt});
      return stops;
    }
    std::vector<v1::UnpairedStep> unpaired;
    auto pairs = PairPlaces(target, *golden, request_.scope(), unpaired);
    if (!pairs.ok()) return pairs.status();
    for (const PlacePair& pair : *pairs) stops.push_back({pair.target, pair.golden});
    for (const v1::UnpairedStep& lonely : unpaired) {
      const Place place{lonely.step(), {lonely.rank().kind(), lonely.rank().number()}};
      stops.push_back(lonely.in_target() ? Stop{place, std::nullopt} : Stop{std::nullopt, place});
    }
    std::stable_sort(stops.begin(), stops.end(), [](const Stop& a, const Stop& b) { return a.shown() < b.shown(); });
    return stops;
  }

  absl::StatusOr<std::vector<Sample>> ReadStop(const AnalysisSource& target,
                                               const std::optional<AnalysisSource>& golden, const Stop& stop) {
    if (cancelled_()) return PeerGone();
    constexpr DumpReading kNumbers{.stacks = false, .construct = false};
    std::vector<Sample> samples;
    absl::flat_hash_map<std::string, size_t> by_name;
    if (stop.target) {
      auto step = target.Read(*stop.target, kNumbers);
      if (!step.ok()) return step.status();
      for (const auto& [entry, row] : Wanted((*step)->table())) {
        samples.push_back(SampleOf((*step)->table(), *entry, *row));
        samples.back().golden.assign(statistics_.size(), kNone);
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
      sample.golden = std::exchange(sample.values, std::vector<double>(statistics_.size(), kNone));
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
          is_wanted =
              row.is_tensor && fnmatch(request_.scope().name_glob().c_str(), std::string(row.name).c_str(), 0) == 0;
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

  Sample SampleOf(const StepTable& table, const Entry& entry, const Row& row) const {
    Sample sample;
    sample.name = std::string(row.name);
    sample.dtype = std::string(table.text(row.dtype));
    sample.shape = std::string(table.text(row.shape));
    sample.token = entry.token;
    for (Statistic statistic : statistics_) sample.values.push_back(StatisticOf(table, row, statistic).value_or(kNone));
    return sample;
  }

  // Null: there are as many as were asked for.
  Series* SeriesOf(const Place& place, size_t row, size_t statistic, const std::string& name, std::string_view dtype,
                   std::string_view shape) {
    const auto key = std::tuple(name, place.second, statistic);
    const std::tuple<Place, size_t> seen(place, row * statistics_.size() + statistic);
    auto found = index_.find(key);
    if (found == index_.end()) {
      if (series_.size() == (request_.limit() == 0 ? kDefaultLimit : request_.limit())) {
        truncated_ = true;
        return nullptr;
      }
      found = index_.emplace(key, series_.size()).first;
      Series& added = series_.emplace_back();
      added.first = seen;
      v1::TrendSeries& head = added.message;
      head.set_name(name);
      *head.mutable_rank() = RankOfPlace(place);
      head.set_statistic(static_cast<v1::Statistic>(statistics_[statistic]));
      head.set_dtype(std::string(dtype));
      head.set_shape(std::string(shape));
    }
    Series& series = series_[found->second];
    if (seen < series.first) {
      series.first = seen;
      series.message.set_dtype(std::string(dtype));
      series.message.set_shape(std::string(shape));
    }
    return &series;
  }

  void Keep(const Place& place, size_t row, const Sample& sample) {
    for (size_t i = 0; i < statistics_.size(); ++i) {
      Series* const series = SeriesOf(place, row, i, sample.name, sample.dtype, sample.shape);
      if (series == nullptr) return;
      series->points.emplace_back(place.first, sample.token, sample.values[i], sample.golden[i]);
    }
  }

  absl::Status SendSeries() {
    std::stable_sort(series_.begin(), series_.end(),
                     [](const Series& a, const Series& b) { return a.first < b.first; });
    for (size_t i = 0; i < series_.size(); ++i) {
      Series& series = series_[i];
      std::stable_sort(series.points.begin(), series.points.end(), [](const auto& a, const auto& b) {
        return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
      });
      for (size_t at = 0; at < series.points.size();) {
        v1::TrendResponse response;
        v1::TrendSeries& message = *response.mutable_series();
        message = series.message;
        for (int points = 0; points < kPointsAMessage && at < series.points.size(); ++points, ++at) {
          const auto& [step, token, value, golden] = series.points[at];
          message.add_step(step);
          message.add_token(token);
          message.add_value(value);
          if (request_.has_golden()) message.add_golden(golden);
        }
        response.set_truncated(truncated_ && i + 1 == series_.size() && at == series.points.size());
        if (!send_(response)) return PeerGone();
      }
    }
    return absl::OkStatus();
  }

  struct Choice {
    std::shared_ptr<const std::vector<bool>> rows;
    std::shared_ptr<const void> layout;  // so that its address stays its own
  };

  const AnalysisContext& context_;
  const v1::TrendRequest& request_;
  const std::function<bool()>& cancelled_;
  const Send<v1::TrendResponse>& send_;
  std::vector<Statistic> statistics_;
  absl::Mutex mu_;
  absl::flat_hash_map<const void*, Choice> choices_ ABSL_GUARDED_BY(mu_);  // by StepTable.layout
  std::map<std::tuple<std::string, std::pair<int, uint32_t>, size_t>, size_t> index_;
  std::vector<Series> series_;
  bool truncated_ = false;
  size_t done_ = 0;
  size_t total_ = 0;
  absl::Time told_ = absl::InfinitePast();
};

}  // namespace

absl::Status Trend(const AnalysisContext& context, const v1::TrendRequest& request,
                   const std::function<bool()>& cancelled, const Send<v1::TrendResponse>& send) {
  return Trends(context, request, cancelled, send).Run();
}

}  // namespace msprobe::server
