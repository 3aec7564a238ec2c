#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/analysis/series/step_columns.h"
#include "server/format/storage/key.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxRanks = 16;  // ranks that get a line of their own

// Tensors of one rank with NaN or infinity.
struct Counts {
  std::vector<uint64_t> nan, inf;  // by column
  uint64_t all = 0;
};

void WriteNumbers(JsonWriter& json, const char* name, const std::vector<uint64_t>& numbers) {
  json.Name(name);
  json.StartArray();
  for (uint64_t number : numbers) json.Uint64(number);
  json.EndArray();
}

}  // namespace

// How many tensors of each rank had a NaN or an infinity, over the steps of the run: {"columns": [[first step, last],
// ...], "ranks": [{"rank", "nan": [...], "inf": [...]}, ...], "other_ranks", "first": {"step", "rank"}}. Ranks with
// neither are left out. If there are more than kMaxRanks, those with the most are shown, in order of rank, and
// "other_ranks" counts the rest.
absl::Status AnswerOverflow(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  if (!run.ok()) return run.status();
  auto columns = query.Number("columns", 600);
  if (!columns.ok()) return columns.status();
  v1::ListStepsRequest request;
  request.set_run(*run);
  std::vector<uint32_t> steps;
  std::vector<v1::StepSummary> found;  // steps with NaN or infinity
  absl::Status status = ListSteps(context.query, request, [&](const v1::StepSummary& step) {
    steps.push_back(step.step());
    if (step.nan_tensors() + step.inf_tensors() > 0) found.push_back(step);
    return steps.size() % 1024 != 0 || !context.cancelled();
  });
  if (!status.ok()) return status;
  const StepColumns places(std::move(steps), std::clamp(*columns, 1u, kMaxColumns));
  std::map<std::pair<int, uint32_t>, Counts> ranks;
  for (const v1::StepSummary& step : found) {
    Counts& counts = ranks[{-step.rank().kind(), step.rank().number()}];  // ranks before processes
    counts.nan.resize(places.size());
    counts.inf.resize(places.size());
    const size_t column = places.ColumnOf(step.step());
    counts.nan[column] += step.nan_tensors();
    counts.inf[column] += step.inf_tensors();
    counts.all += step.nan_tensors() + step.inf_tensors();
  }
  std::vector<uint64_t> weights;
  for (const auto& [rank, counts] : ranks) weights.push_back(counts.all);
  std::sort(weights.rbegin(), weights.rend());
  const uint64_t least = weights.size() > kMaxRanks ? weights[kMaxRanks - 1] : 0;

  json.StartObject();
  WriteSpans(json, "columns", places.size(), [&](size_t i) { return std::pair(places.first(i), places.last(i)); });
  json.Name("ranks");
  json.StartArray();
  size_t shown = 0;
  for (const auto& [rank, counts] : ranks) {
    if (counts.all < least || shown == kMaxRanks) continue;
    ++shown;
    v1::Rank of;
    of.set_kind(static_cast<v1::Rank::Kind>(-rank.first));
    of.set_number(rank.second);
    json.StartObject();
    json.Name("rank");
    json.Text(RankName(of));
    WriteNumbers(json, "nan", counts.nan);
    WriteNumbers(json, "inf", counts.inf);
    json.EndObject();
  }
  json.EndArray();
  json.Name("other_ranks");
  json.Uint64(ranks.size() - shown);
  if (!found.empty()) {
    json.Name("first");
    json.StartObject();
    json.Name("step");
    json.Uint(found.front().step());
    json.Name("rank");
    json.Text(RankName(found.front().rank()));
    json.EndObject();
  }
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
