#include <string>

#include "server/format/storage/key.h"
#include "server/web/web_question.h"

namespace msprobe::server {

// [{"run", "created_unix_us", "steps", "ranks": ["rank0", ...], "records", "tensors", "nan_tensors", "inf_tensors",
// "open_sessions"}, ...], the latest first; only `run` if it is given.
absl::Status AnswerRuns(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  v1::ListRunsResponse response;
  if (absl::Status status = ListRuns(context.query, response); !status.ok()) return status;
  json.StartArray();
  for (int i = response.runs_size() - 1; i >= 0; --i) {
    const v1::RunSummary& run = response.runs(i);
    if (const std::string wanted = query.Text("run"); !wanted.empty() && wanted != run.run()) continue;
    json.StartObject();
    json.Name("run");
    json.Text(run.run());
    json.Name("created_unix_us");
    json.Int64(run.created_unix_us());
    json.Name("ranks");
    json.StartArray();
    for (const v1::Rank& rank : run.ranks()) json.Text(RankName(rank));
    json.EndArray();
    for (const auto& [name, value] : {std::pair<const char*, uint64_t>{"steps", run.steps()},
                                      {"records", run.records()},
                                      {"tensors", run.tensors()},
                                      {"nan_tensors", run.nan_tensors()},
                                      {"inf_tensors", run.inf_tensors()},
                                      {"open_sessions", run.open_sessions()}}) {
      json.Name(name);
      json.Uint64(value);
    }
    json.EndObject();
  }
  json.EndArray();
  return absl::OkStatus();
}

}  // namespace msprobe::server
