#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "server/format/storage/key.h"
#include "server/web/compared_json.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr int kMaxEvidence = 20;

std::string BlameName(v1::Blame blame) {
  std::string name(v1::Blame_Name(blame).substr(sizeof("BLAME_") - 1));
  for (char& c : name) c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return name;
}

}  // namespace

// Where a run first differs from `golden`, of all ranks: {"divergence": {"step", "rank", "op", "golden_op", "module",
// "blame", "culprit", "evidence": [{"name", "statistic", "dtype", "shape", "target", "golden", "excess"}, ...]},
// "notes"}. "divergence" is left out if they agree within tolerance; the notes say what records the two runs lack.
absl::Status AnswerDivergence(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto golden = query.Required("golden");
  for (const absl::Status& status : {run.status(), golden.status()}) {
    if (!status.ok()) return status;
  }
  v1::FirstDivergenceRequest request;
  request.mutable_target()->set_run(*run);
  request.mutable_golden()->set_run(*golden);
  std::optional<v1::Divergence> first;
  std::vector<std::string> notes;
  absl::Status status =
      FirstDivergence(context.analysis, request, context.cancelled, [&](const v1::FirstDivergenceResponse& response) {
        if (response.has_progress()) {
          return context.tell(response.progress().steps_done(), response.progress().steps_total());
        }
        if (!response.note().empty()) notes.push_back(response.note());
        if (response.has_divergence() && response.divergence().first()) first = response.divergence();
        return true;
      });
  if (!status.ok()) return status;
  json.StartObject();
  if (first.has_value()) {
    json.Name("divergence");
    json.StartObject();
    json.Name("step");
    json.Uint(first->step());
    WriteTexts(json, {{"rank", RankName(first->rank())},
                      {"op", first->op()},
                      {"golden_op", first->golden_op()},
                      {"module", first->module()},
                      {"blame", BlameName(first->blame())},
                      {"culprit", first->culprit()}});
    json.Name("evidence");
    json.StartArray();
    for (int i = 0; i < std::min(first->evidence_size(), kMaxEvidence); ++i) {
      json.StartObject();
      WriteCompared(json, first->evidence(i));
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
  }
  WriteNotes(json, notes);
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
