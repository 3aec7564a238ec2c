#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/analysis/series/step_columns.h"
#include "server/format/storage/key.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxRows = 256;

// What became of consecutive ranks, by column.
struct RankRow {
  v1::Rank first, last;
  std::string states;              // a letter for each column
  std::vector<uint64_t> nan, inf;  // tensors; empty: none
};

// From the best to the worst.
constexpr char kNothing = '-', kFinite = 'f', kInfinity = 'i', kNan = 'n';

char WorseOf(char one, char other) {
  static constexpr std::string_view kOrder = "-fin";
  return kOrder[std::max(kOrder.find(one), kOrder.find(other))];
}

void Add(RankRow& row, const v1::StepSummary& step, size_t column, size_t columns) {
  char& state = row.states[column];
  state = WorseOf(state, step.nan_tensors() > 0 ? kNan : step.inf_tensors() > 0 ? kInfinity : kFinite);
  if (step.nan_tensors() + step.inf_tensors() == 0) return;
  row.nan.resize(columns);
  row.inf.resize(columns);
  row.nan[column] += step.nan_tensors();
  row.inf[column] += step.inf_tensors();
}

void WriteNumbers(JsonWriter& json, const char* name, const std::vector<uint64_t>& numbers) {
  json.Name(name);
  json.StartArray();
  for (uint64_t number : numbers) json.Uint64(number);
  json.EndArray();
}

}  // namespace

// Which ranks were finite at which steps: {"columns": [[first step, last], ...], "rows": [{"ranks": [first, last],
// "states", "nan": [...], "inf": [...]}, ...], "ranks", "ranks_with"}. A row is a rank, or some consecutive ones where
// there are more than `rows`. "states" has a letter for each column: - nothing captured, f all finite, i an infinity, n
// a NaN. "nan" and "inf" count tensors; both are empty where all is finite. "ranks_with" counts ranks that have any.
absl::Status AnswerOverflow(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto columns = query.Number("columns", 600);
  auto max_rows = query.Number("rows", 64);
  for (const absl::Status& status : {run.status(), columns.status(), max_rows.status()}) {
    if (!status.ok()) return status;
  }
  v1::ListStepsRequest request;
  request.set_run(*run);
  std::vector<v1::StepSummary> steps;
  absl::Status status = ListSteps(context.query, request, [&](const v1::StepSummary& step) {
    v1::StepSummary& kept = steps.emplace_back();
    kept.set_step(step.step());
    *kept.mutable_rank() = step.rank();
    kept.set_nan_tensors(step.nan_tensors());
    kept.set_inf_tensors(step.inf_tensors());
    return steps.size() % 1024 != 0 || !context.cancelled();
  });
  if (!status.ok()) return status;
  std::vector<uint32_t> numbers;
  std::map<uint32_t, size_t> ranks;  // RankCode, ranks before processes: the place of each
  std::set<uint32_t> with;
  for (const v1::StepSummary& step : steps) {
    numbers.push_back(step.step());
    ranks[RankCode(step.rank())] = 0;
    if (step.nan_tensors() + step.inf_tensors() > 0) with.insert(RankCode(step.rank()));
  }
  const StepColumns places(std::move(numbers), std::clamp(*columns, 1u, kMaxColumns));
  const size_t wanted = std::clamp(*max_rows, 1u, kMaxRows);
  const size_t each = std::max<size_t>(1, (ranks.size() + wanted - 1) / wanted);
  std::vector<RankRow> rows((ranks.size() + each - 1) / each);
  size_t place = 0;
  for (auto& [code, of_rank] : ranks) {
    of_rank = place++ / each;
    RankRow& row = rows[of_rank];
    if (row.states.empty()) row.first = RankOfCode(code);
    row.last = RankOfCode(code);
    row.states.resize(places.size(), kNothing);
  }
  for (const v1::StepSummary& step : steps) {
    Add(rows[ranks.at(RankCode(step.rank()))], step, places.ColumnOf(step.step()), places.size());
  }
  json.StartObject();
  WriteSpans(json, "columns", places.size(), [&](size_t i) { return std::pair(places.first(i), places.last(i)); });
  json.Name("rows");
  json.StartArray();
  for (const RankRow& row : rows) {
    json.StartObject();
    json.Name("ranks");
    json.StartArray();
    json.Text(RankName(row.first));
    json.Text(RankName(row.last));
    json.EndArray();
    json.Name("states");
    json.Text(row.states);
    WriteNumbers(json, "nan", row.nan);
    WriteNumbers(json, "inf", row.inf);
    json.EndObject();
  }
  json.EndArray();
  json.Name("ranks");
  json.Uint64(ranks.size());
  json.Name("ranks_with");
  json.Uint64(with.size());
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
