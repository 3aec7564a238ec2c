#include <algorithm>
#include <iterator>
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

struct TrendPoint {
  uint32_t step, token;
  std::optional<double> value, golden;
};

void AddPoint(const TrendPoint& point, bool paired, v1::TrendSeries& series) {
  const auto index = static_cast<uint32_t>(series.step_size());
  series.add_step(point.step);
  series.add_token(point.token);
  series.add_value(point.value.value_or(kNone));
  if (!point.value.has_value()) series.add_without_value(index);
  if (!paired) return;
  series.add_golden(point.golden.value_or(kNone));
  if (!point.golden.has_value()) series.add_without_golden(index);
}

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
    const bool only_logs = golden.has_value() && (target->places().empty() || golden->places().empty());
    if (!scalars_.empty() && (only_logs || absl::IsNotFound(stops.status()))) return SendScalars();
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
    series_at_->points.push_back({step, token, value, golden});
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
    std::vector<TrendPoint> points;
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

  // The series of `name` at the same rank. Where each side has it of one process, whose numbers are process ids, the
  // other side's. Null: there is none.
  static const std::vector<SeriesPoint>* PartnerOf(const SeriesByName::key_type& name, const SeriesByName& ours,
                                                   const SeriesByName& theirs) {
    if (const auto found = theirs.find(name); found != theirs.end()) return &found->second;
    const auto only = [&name](const SeriesByName& side) {
      const auto first = side.lower_bound({name.first, 0});
      const bool is_one = first != side.end() && first->first.first == name.first &&
                          (std::next(first) == side.end() || std::next(first)->first.first != name.first);
      return is_one ? first : side.end();
    };
    const auto other = only(theirs);
    if (only(ours) == ours.end() || other == theirs.end()) return nullptr;
    const bool is_process = RankOfCode(name.second).kind() == v1::Rank::PROCESS ||
                            RankOfCode(other->first.second).kind() == v1::Rank::PROCESS;
    return is_process ? &other->second : nullptr;
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
      Series scalar;
      scalar.message.set_name(name.first);
      *scalar.message.mutable_rank() = rank;
      std::map<uint32_t, double> others;
      if (const auto* const partner = PartnerOf(name, *series, golden)) {
        for (const SeriesPoint& point : *partner) others[point.step] = point.value;
      }
      for (const SeriesPoint& point : points) {
        if (!scope.Takes({point.step, {rank.kind(), rank.number()}})) continue;
        const auto other = others.find(point.step);
        scalar.points.push_back({.step = point.step,
                                 .token = 0,
                                 .value = point.value,
                                 .golden = other == others.end() ? std::nullopt : std::optional(other->second)});
      }
      if (!scalar.points.empty()) scalars_.push_back(std::move(scalar));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SeriesByName> ScalarsOf(const std::string& run) {
    return ReadSeriesOf(context_.shards(), {.run = run, .name_glob = request_.scope().name_glob()});
  }

  absl::Status SendScalars() {
    for (const Series& series : scalars_) {
      if (!SendPoints(series, false)) return PeerGone();
    }
    return absl::OkStatus();
  }

  absl::Status SendSeries() {
    std::stable_sort(series_.begin(), series_.end(),
                     [](const Series& a, const Series& b) { return a.first < b.first; });
    for (Series& series : series_) {
      std::stable_sort(series.points.begin(), series.points.end(), [](const TrendPoint& a, const TrendPoint& b) {
        return std::tie(a.step, a.token) < std::tie(b.step, b.token);
      });
      if (!SendPoints(series, truncated_ && &series == &series_.back())) return PeerGone();
    }
    return absl::OkStatus();
  }

  // truncated: as TrendResponse has it, with the last of these. False: the peer is gone.
  bool SendPoints(const Series& series, bool truncated) const {
    for (size_t at = 0; at < series.points.size();) {
      v1::TrendResponse response;
      v1::TrendSeries& message = *response.mutable_series();
      message = series.message;
      for (int points = 0; points < kPointsAMessage && at < series.points.size(); ++points, ++at) {
        AddPoint(series.points[at], request_.has_golden(), message);
      }
      response.set_truncated(truncated && at == series.points.size());
      if (!send_(response)) return false;
    }
    return true;
  }

  const AnalysisContext& context_;
  const v1::TrendRequest& request_;
  const std::function<bool()>& cancelled_;
  const Send<v1::TrendResponse>& send_;
  std::vector<Statistic> statistics_;
  std::map<std::tuple<std::string, std::pair<int, uint32_t>, size_t>, size_t> index_;
  std::vector<Series> series_;
  Series* series_at_ = nullptr;  // of the points that come
  std::vector<Series> scalars_;
  bool truncated_ = false;
};

}  // namespace

absl::Status Trend(const AnalysisContext& context, const v1::TrendRequest& request,
                   const std::function<bool()>& cancelled, const Send<v1::TrendResponse>& send) {
  return Trends(context, request, cancelled, send).Run();
}

}  // namespace msprobe::server
