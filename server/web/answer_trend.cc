#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "server/analysis/series/step_columns.h"
#include "server/format/storage/key.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

// The points of one column.
struct Range {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  uint32_t nan = 0, inf = 0;

  void Add(double value) {
    if (std::isnan(value)) {
      ++nan;
    } else if (std::isinf(value)) {
      ++inf;
    } else {
      min = std::min(min, value);
      max = std::max(max, value);
    }
  }
};

void WriteRanges(JsonWriter& json, const char* name, const std::vector<Range>& ranges) {
  json.Name(name);
  json.StartArray();
  for (const Range& range : ranges) {
    json.StartArray();
    const bool finite = range.min <= range.max;
    finite ? json.Double(range.min) : json.Null();
    finite ? json.Double(range.max) : json.Null();
    json.Uint(range.nan);
    json.Uint(range.inf);
    json.EndArray();
  }
  json.EndArray();
}

}  // namespace

// One statistic of one tensor: {"columns": [[first step, last], ...], "dtype", "shape", "value": [[min, max, NaN,
// infinities], ...]}, and "golden" in the same form if a golden run is given. min and max are those of the finite
// values; null if there are none.
absl::Status AnswerTrend(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto tensor = query.Required("tensor");
  auto rank = query.Rank();
  auto statistic = query.Statistic();
  auto columns = query.Number("columns", 600);
  for (const absl::Status& status :
       {run.status(), tensor.status(), rank.status(), statistic.status(), columns.status()}) {
    if (!status.ok()) return status;
  }
  v1::TrendRequest request;
  request.mutable_source()->set_run(*run);
  request.add_statistics(*statistic);
  request.mutable_scope()->set_name_glob(LiteralPattern(*tensor));
  const std::string golden = query.Text("golden");
  if (!golden.empty()) request.mutable_golden()->set_run(golden);
  // A process has another number on the golden side, so its rows are chosen after the two sides are paired.
  if (golden.empty() || rank->kind() == v1::Rank::RANK) *request.mutable_scope()->add_ranks() = *rank;
  std::vector<v1::TrendSeries> series;
  std::vector<uint32_t> steps;
  absl::Status status = Trend(context.analysis, request, context.cancelled, [&](const v1::TrendResponse& response) {
    if (response.has_progress()) {
      return context.tell(response.progress().steps_done(), response.progress().steps_total());
    }
    if (response.has_series() && RankName(response.series().rank()) == RankName(*rank)) {
      steps.insert(steps.end(), response.series().step().begin(), response.series().step().end());
      series.push_back(response.series());
    }
    return true;
  });
  if (!status.ok()) return status;
  const StepColumns places(std::move(steps), std::clamp(*columns, 1u, kMaxColumns));
  std::vector<Range> values(places.size()), goldens(golden.empty() ? 0 : places.size());
  for (const v1::TrendSeries& one : series) {
    for (int i = 0; i < one.step_size(); ++i) {
      const size_t column = places.ColumnOf(one.step(i));
      values[column].Add(one.value(i));
      if (i < one.golden_size()) goldens[column].Add(one.golden(i));
    }
  }
  json.StartObject();
  WriteSpans(json, "columns", places.size(), [&](size_t i) { return std::pair(places.first(i), places.last(i)); });
  json.Name("dtype");
  json.Text(series.empty() ? "" : series.front().dtype());
  json.Name("shape");
  json.Text(series.empty() ? "" : series.front().shape());
  WriteRanges(json, "value", values);
  if (!golden.empty()) WriteRanges(json, "golden", goldens);
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
