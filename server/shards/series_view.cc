#include "server/shards/series_view.h"

#include <algorithm>
#include <optional>

#include "server/shards/series_parts.h"

namespace msprobe::server {

absl::StatusOr<SeriesByName> ReadSeriesOf(const Shards& shards, const SeriesQuestion& question) {
  auto view = RunView::Open(shards, question.run);
  if (!view.ok()) return view.status();
  shards::ReadSeriesRequest request;
  request.set_run(question.run);
  request.set_name_glob(question.name_glob);
  request.set_first_step(question.first_step);
  request.set_last_step(question.last_step);
  std::vector<shards::SeriesPart> parts;
  for (Peer* peer : view->holders()) {
    const auto keep = [&parts](const shards::SeriesPart& part) {
      parts.push_back(part);
      return true;
    };
    absl::Status status =
        peer == nullptr ? SeriesPartsHere(*shards.store, request, keep) : peer->ReadSeries(request, keep);
    if (!status.ok()) return status;
  }
  // A server has put its own sessions in order.
  if (view->holders().size() > 1) {
    std::stable_sort(parts.begin(), parts.end(), [](const shards::SeriesPart& a, const shards::SeriesPart& b) {
      return a.opened_unix_us() < b.opened_unix_us();
    });
  }
  SeriesByName series;
  for (const shards::SeriesPart& part : parts) {
    std::vector<SeriesPoint>& points = series[{part.name(), part.rank()}];
    for (int i = 0; i < std::min(part.step_size(), part.value_size()); ++i) {
      points.push_back({part.step(i), part.value(i)});
    }
  }
  for (auto& [name, points] : series) SortPoints(points);
  return series;
}

}  // namespace msprobe::server
