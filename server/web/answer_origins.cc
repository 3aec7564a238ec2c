#include <algorithm>
#include <vector>

#include "server/web/origin_json.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kDefaultLimit = 20;
constexpr uint32_t kMaxOrigins = 200;
constexpr uint32_t kOriginsOfAStep = 3;  // for each rank
constexpr size_t kMaxReads = 64;         // pairs of step and rank that are read

}  // namespace

// Where NaN and infinity began, for the first steps with any between `first` and `last`: [{"step", "rank", "op",
// "module", "tensor", "dtype", "shape", "origin", "nan", "infinity"}, ...], at most `limit`.
absl::Status AnswerOrigins(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto first = query.Number("first", 0);
  auto last = query.Number("last", UINT32_MAX);
  auto limit = query.Number("limit", kDefaultLimit);
  for (const absl::Status& status : {run.status(), first.status(), last.status(), limit.status()}) {
    if (!status.ok()) return status;
  }
  // Reads only steps with NaN or infinity.
  v1::ListStepsRequest list;
  list.set_run(*run);
  std::vector<v1::StepSummary> suspects;
  absl::Status status = ListSteps(context.query, list, [&](const v1::StepSummary& step) {
    const bool has = step.nan_tensors() + step.inf_tensors() > 0 && step.step() >= *first && step.step() <= *last;
    if (has && suspects.size() < kMaxReads) suspects.push_back(step);
    return true;
  });
  if (!status.ok()) return status;
  const uint32_t max_shown = std::clamp(*limit, 1u, kMaxOrigins);
  uint32_t shown = 0;
  json.StartArray();
  for (size_t i = 0; i < suspects.size() && shown < max_shown; ++i) {
    v1::OverflowRequest request;
    request.mutable_source()->set_run(*run);
    request.set_limit(kOriginsOfAStep);
    v1::Scope::Steps& steps = *request.mutable_scope()->add_steps();
    steps.set_first(suspects[i].step());
    steps.set_last(suspects[i].step());
    *request.mutable_scope()->add_ranks() = suspects[i].rank();
    status = Overflow(context.analysis, request, context.cancelled, [&](const v1::OverflowResponse& response) {
      if (response.has_overflow() && !response.overflow().first() && shown < max_shown) {
        WriteOrigin(json, response.overflow());
        ++shown;
      }
      return true;
    });
    if (!status.ok()) return status;
    if (!context.tell(i + 1, suspects.size())) return PeerGone();
  }
  json.EndArray();
  return absl::OkStatus();
}

}  // namespace msprobe::server
