#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "server/format/cat.h"
#include "server/query/query_context.h"
#include "server/shards/series_view.h"

namespace msprobe::server {
namespace {

constexpr size_t kPointsOfASeries = 100'000;
constexpr uint32_t kLeastPoints = 3;

// Of each of max_points / 3 stretches of equal length: the first point that is not finite, the smallest and the
// largest.
std::vector<SeriesPoint> Thinned(const std::vector<SeriesPoint>& points, uint32_t max_points) {
  if (max_points == 0 || points.size() <= max_points) return points;
  const size_t stretches = max_points / kLeastPoints;
  std::vector<SeriesPoint> kept;
  for (size_t stretch = 0; stretch < stretches; ++stretch) {
    const size_t begin = points.size() * stretch / stretches, end = points.size() * (stretch + 1) / stretches;
    std::optional<size_t> broken, least, greatest;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(points[i].value)) {
        if (!broken.has_value()) broken = i;
        continue;
      }
      if (!least.has_value() || points[i].value < points[*least].value) least = i;
      if (!greatest.has_value() || points[i].value > points[*greatest].value) greatest = i;
    }
    std::vector<size_t> places;
    for (const std::optional<size_t>& place : {broken, least, greatest}) {
      if (place.has_value()) places.push_back(*place);
    }
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (size_t place : places) kept.push_back(points[place]);
  }
  return kept;
}

}  // namespace

absl::Status ReadSeries(const QueryContext& context, const v1::ReadSeriesRequest& request,
                        const Send<v1::Series>& send) {
  if (request.max_points() > 0 && request.max_points() < kLeastPoints) {
    return absl::InvalidArgumentError(
        Cat("max_points is ", request.max_points(), "; it is 0 or at least ", kLeastPoints));
  }
  const uint32_t last = request.has_last_step() ? request.last_step() : UINT32_MAX;
  auto series = ReadSeriesOf(
      context.shards(),
      {.run = request.run(), .name_glob = request.name_glob(), .first_step = request.first_step(), .last_step = last});
  if (!series.ok()) return series.status();
  std::vector<uint32_t> ranks;
  for (const v1::Rank& rank : request.ranks()) ranks.push_back(RankCode(rank));
  for (const auto& [key, whole] : *series) {
    const auto& [name, rank] = key;
    if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    v1::Series message;
    message.set_name(name);
    *message.mutable_rank() = RankOfCode(rank);
    message.set_points(whole.size());
    if (request.names_only()) {
      if (!send(message)) return PeerGone();
      continue;
    }
    const std::vector<SeriesPoint> points = Thinned(whole, request.max_points());
    for (size_t at = 0; at < points.size(); at += kPointsOfASeries) {
      message.clear_step();
      message.clear_value();
      for (size_t i = at; i < std::min(points.size(), at + kPointsOfASeries); ++i) {
        message.add_step(points[i].step);
        message.add_value(points[i].value);
      }
      if (!send(message)) return PeerGone();
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
