#include <algorithm>
#include <map>
#include <utility>

#include "server/query/query_context.h"
#include "server/shards/joined_run.h"
#include "server/shards/run_parts.h"

namespace msprobe::server {

absl::Status ListRuns(const QueryContext& context, v1::ListRunsResponse& response) {
  auto here = RunPartsHere(*context.store);
  if (!here.ok()) return here.status();
  if (context.peers == nullptr) {
    for (shards::RunPart& part : *here) response.add_runs()->Swap(part.mutable_summary());
    return absl::OkStatus();
  }
  std::map<std::string, JoinedRun> runs;
  for (const shards::RunPart& part : *here) runs[part.summary().run()].Add(part);
  using Parts = absl::StatusOr<std::vector<shards::RunPart>>;
  const std::vector<Peer*> others = context.peers->Others(context.peers->shards());
  const std::vector<Parts> answers = Peers::AskAll<Parts>(others, [](Peer& peer) -> Parts {
    std::vector<shards::RunPart> parts;
    absl::Status status = peer.ListRuns([&](shards::RunPart& part) { parts.emplace_back().Swap(&part); });
    if (!status.ok()) return status;
    return parts;
  });
  for (size_t i = 0; i < others.size(); ++i) {
    if (absl::IsUnavailable(answers[i].status())) {
      v1::MissingShard missing;
      missing.set_shard(others[i]->address());
      missing.set_why(std::string(answers[i].status().message()));
      context.missing->Add(std::move(missing));
      continue;
    }
    if (!answers[i].ok()) return answers[i].status();
    for (const shards::RunPart& part : *answers[i]) runs[part.summary().run()].Add(part);
  }
  std::vector<v1::RunSummary> sums;
  for (auto& [name, run] : runs) {
    auto sum = std::move(run).Sum(context.shards());
    if (!sum.ok()) return sum.status();
    sums.push_back(*std::move(sum));
  }
  // As each server numbers them: in the order in which they were made.
  std::stable_sort(sums.begin(), sums.end(), [](const v1::RunSummary& a, const v1::RunSummary& b) {
    return a.created_unix_us() < b.created_unix_us();
  });
  for (v1::RunSummary& sum : sums) response.add_runs()->Swap(&sum);
  return absl::OkStatus();
}

}  // namespace msprobe::server
