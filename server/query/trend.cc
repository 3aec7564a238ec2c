#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/analysis/series/trend_walk.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/opened_source.h"
#include "server/shards/series_view.h"

namespace msprobe::server {
namespace {

using Place = StepTables::Place;

constexpr uint32_t kDefaultLimit = 1000;
constexpr int kPointsAMessage = 20'000;
const double kNone = std::numeric_limits<double>::quiet_NaN();

class Trends : public TrendSink {
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
    auto target = OpenedSource::Open(request_.source(), context_);
    if (!target.ok()) return target.status();
    std::optional<OpenedSource> golden;
    if (request_.has_golden()) {
      auto opened = OpenedSource::Open(request_.golden(), context_);
      if (!opened.ok()) return opened.status();
      golden = *std::move(opened);
    }
    if (absl::Status status = AddScalars(); !status.ok()) return status;
    auto stops = StopsOf(*target, golden);
    // A run that only logs has no step of records.
    if (absl::IsNotFound(stops.status()) && !scalars_.empty()) return SendScalars();
    if (!stops.ok()) return stops.status();
    const TrendQuestion question{request_.scope().name_glob(), statistics_, context_.threads, cancelled_};
    absl::Status status = WalkTrend(question, *target, golden ? &*golden : nullptr, *std::move(stops), *this);
    if (status.ok()) status = SendSeries();
    return status.ok() ? SendScalars() : status;
  }

  bool Begin(const TrendTensor& tensor, size_t statistic) override {
    series_at_ = SeriesOf(tensor, statistic);
    return series_at_ != nullptr;
  }

  void Point(uint32_t step, uint32_t token, std::optional<double> value, std::optional<double> golden) override {
    series_at_->points.emplace_back(step, token, value.value_or(kNone), golden.value_or(kNone));
  }

  bool Progress(size_t done, size_t total) override {
    v1::TrendResponse response;
    response.mutable_progress()->set_steps_done(done);
    response.mutable_progress()->set_steps_total(total);
    return send_(response);
  }

 private:
  struct Series {
    v1::TrendSeries message;          // its head
    std::tuple<Place, size_t> first;  // where it was seen first: step and rank, row
    std::vector<std::tuple<uint32_t, uint32_t, double, double>> points;
  };

  absl::StatusOr<std::vector<TrendStop>> StopsOf(const OpenedSource& target,
                                                 const std::optional<OpenedSource>& golden) {
    std::vector<TrendStop> stops;
    if (!golden) {
      auto places = PlacesIn(target, ScopeOf(request_.scope()));
      if (!places.ok()) return places.status();
      for (const Place& place : *places) stops.push_back({place, std::nullopt});
      return stops;
    }
    std::vector<UnpairedPlace> unpaired;
    auto pairs = PairPlaces(target, *golden, ScopeOf(request_.scope()), unpaired);
    if (!pairs.ok()) return pairs.status();
    for (const PlacePair& pair : *pairs) stops.push_back({pair.target, pair.golden});
    for (const auto& [in_target, place] : unpaired) {
      stops.push_back(in_target ? TrendStop{place, std::nullopt} : TrendStop{std::nullopt, place});
    }
    std::stable_sort(stops.begin(), stops.end(),
                     [](const TrendStop& a, const TrendStop& b) { return a.shown() < b.shown(); });
    return stops;
  }

  // Null: there are as many as were asked for.
  Series* SeriesOf(const TrendTensor& tensor, size_t statistic) {
    const auto key = std::tuple(std::string(tensor.name), tensor.place.second, statistic);
    const std::tuple<Place, size_t> seen(tensor.place, tensor.row * statistics_.size() + statistic);
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
      head.set_name(std::string(tensor.name));
      *head.mutable_rank() = RankOfPlace(tensor.place);
      head.set_statistic(static_cast<v1::Statistic>(statistics_[statistic]));
      head.set_dtype(std::string(tensor.dtype));
      head.set_shape(std::string(tensor.shape));
    }
    Series& series = series_[found->second];
    if (seen < series.first) {
      series.first = seen;
      series.message.set_dtype(std::string(tensor.dtype));
      series.message.set_shape(std::string(tensor.shape));
    }
    return &series;
  }

  // Scalars that the pattern takes; of the golden side those of the same name and rank.
  absl::Status AddScalars() {
    if (request_.source().kind_case() != v1::Source::kRun) return absl::OkStatus();
    const PlaceScope scope = ScopeOf(request_.scope());
    auto series = ScalarsOf(request_.source().run());
    if (!series.ok()) return series.status();
    SeriesByName golden;
    if (request_.golden().kind_case() == v1::Source::kRun) {
      auto beside = ScalarsOf(request_.golden().run());
      if (!beside.ok()) return beside.status();
      golden = *std::move(beside);
    }
    for (auto& [name, points] : *series) {
      const v1::Rank rank = RankOfCode(name.second);
      v1::TrendSeries message;
      message.set_name(name.first);
      *message.mutable_rank() = rank;
      std::map<uint32_t, double> others;
      for (const SeriesPoint& point : golden[name]) others[point.step] = point.value;
      for (const SeriesPoint& point : points) {
        if (!scope.Takes({point.step, {rank.kind(), rank.number()}})) continue;
        message.add_step(point.step);
        message.add_token(0);
        message.add_value(point.value);
        if (!request_.has_golden()) continue;
        const auto other = others.find(point.step);
        message.add_golden(other == others.end() ? kNone : other->second);
      }
      if (message.step_size() > 0) scalars_.push_back(std::move(message));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SeriesByName> ScalarsOf(const std::string& run) {
    return ReadSeriesOf(context_.shards(), {.run = run, .name_glob = request_.scope().name_glob()});
  }

  absl::Status SendScalars() {
    for (v1::TrendSeries& whole : scalars_) {
      for (int at = 0; at < whole.step_size(); at += kPointsAMessage) {
        v1::TrendResponse response;
        v1::TrendSeries& message = *response.mutable_series();
        message.set_name(whole.name());
        *message.mutable_rank() = whole.rank();
        for (int i = at; i < std::min(whole.step_size(), at + kPointsAMessage); ++i) {
          message.add_step(whole.step(i));
          message.add_token(0);
          message.add_value(whole.value(i));
          if (i < whole.golden_size()) message.add_golden(whole.golden(i));
        }
        if (!send_(response)) return PeerGone();
      }
    }
    return absl::OkStatus();
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

  const AnalysisContext& context_;
  const v1::TrendRequest& request_;
  const std::function<bool()>& cancelled_;
  const Send<v1::TrendResponse>& send_;
  std::vector<Statistic> statistics_;
  std::map<std::tuple<std::string, std::pair<int, uint32_t>, size_t>, size_t> index_;
  std::vector<Series> series_;
  Series* series_at_ = nullptr;  // of the points that come
  std::vector<v1::TrendSeries> scalars_;
  bool truncated_ = false;
};

}  // namespace

absl::Status Trend(const AnalysisContext& context, const v1::TrendRequest& request,
                   const std::function<bool()>& cancelled, const Send<v1::TrendResponse>& send) {
  return Trends(context, request, cancelled, send).Run();
}

}  // namespace msprobe::server
