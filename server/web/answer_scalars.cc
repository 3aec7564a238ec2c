#include <set>
#include <string>

#include "server/shards/whole_series.h"
#include "server/web/web_question.h"

namespace msprobe::server {

// The names of the scalars that the run's program logged: ["loss", ...]. Each is a tensor to AnswerTrend. Of a cluster
// those that this server has. Of a sharded tensor the whole's, and a shard's where that gives no whole.
absl::Status AnswerScalars(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  if (!run.ok()) return run.status();
  auto row = context.query.store->catalogue().LookUpRun(*run);
  if (!row.ok()) return row.status();
  std::set<std::string> names;
  if (row->has_value()) {
    auto series = context.query.store->scalars().ReadNames((*row)->number());
    if (!series.ok()) return series.status();
    for (auto& [id, name] : *series) names.insert(std::move(name));
  }
  json.StartArray();
  for (const std::string& name : ShownNames(names)) json.Text(name);
  json.EndArray();
  return absl::OkStatus();
}

}  // namespace msprobe::server
