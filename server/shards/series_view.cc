#include "server/shards/series_view.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "server/format/cat.h"
#include "server/shards/missing_shards.h"
#include "server/shards/series_parts.h"
#include "server/shards/whole_series.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMostPoints = 10'000'000;  // about 300 MiB while they are merged

}  // namespace

absl::StatusOr<SeriesByName> ReadSeriesOf(const Shards& shards, const SeriesQuestion& question) {
  auto view = RunView::Open(shards, question.run);
  if (!view.ok()) return view.status();
  shards::ReadSeriesRequest request;
  request.set_run(question.run);
  request.set_name_glob(question.name_glob);
  request.set_first_step(question.first_step);
  request.set_last_step(question.last_step);
  std::vector<shards::SeriesPart> parts;
  uint64_t points_read = 0;
  for (Peer* peer : view->holders()) {
    const size_t before = parts.size();
    const auto keep = [&](const shards::SeriesPart& part) {
      points_read += static_cast<uint64_t>(part.step_size());
      if (points_read > kMostPoints) return false;
      parts.push_back(part);
      return true;
    };
    absl::Status status =
        peer == nullptr ? SeriesPartsHere(*shards.store, request, keep) : peer->ReadSeries(request, keep);
    if (points_read > kMostPoints) {
      return absl::ResourceExhaustedError(
          Cat("these series have more than ", kMostPoints, " points; ask for fewer names or steps"));
    }
    // A peer may have gone since, or be of a version without series.
    if (peer != nullptr && shards.missing != nullptr && absl::IsUnavailable(status)) {
      parts.resize(before);
      v1::MissingShard missing;
      missing.set_shard(peer->address());
      missing.set_why(std::string(status.message()));
      missing.set_run(question.run);
      shards.missing->Add(std::move(missing));
      continue;
    }
    if (!status.ok()) return status;
  }
  // A server has put its own sessions in order.
  if (view->holders().size() > 1) {
    std::stable_sort(parts.begin(), parts.end(), [](const shards::SeriesPart& a, const shards::SeriesPart& b) {
      return a.opened_unix_us() < b.opened_unix_us();
    });
  }
  SeriesByName series;
  WholeSeries wholes;
  for (const shards::SeriesPart& part : parts) {
    std::vector<SeriesPoint>& points = series[{part.name(), part.rank()}];
    for (int i = 0; i < std::min(part.step_size(), part.value_size()); ++i) {
      points.push_back({part.step(i), part.value(i)});
    }
    wholes.Note(part.name(), part.opened_unix_us());
  }
  for (auto& [name, points] : series) SortPoints(points);
  wholes.Join(question.name_glob, series);
  return series;
}

}  // namespace msprobe::server
