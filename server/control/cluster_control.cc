#include "server/control/cluster_control.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace msprobe::server {
namespace {

using Process = v1::ControlRunResponse::Process;
using ShardAnswer = absl::StatusOr<v1::ControlRunResponse>;

std::pair<bool, uint32_t> Place(const Process& process) {
  return {process.rank().kind() != v1::Rank::RANK, process.rank().number()};
}

}  // namespace

absl::Status AskCluster(RunControl& here, const Catalogue& catalogue, Peers& peers,
                        const v1::ControlRunRequest& request, const std::string& asked_by,
                        const std::function<bool()>& cancelled, MissingShards& missing,
                        v1::ControlRunResponse* response) {
  auto run = catalogue.LookUpRun(request.run());
  if (!run.ok()) return run.status();
  ShardList shards = peers.shards();
  if (run->has_value() && (*run)->shards_size() > 0) shards.assign((*run)->shards().begin(), (*run)->shards().end());
  const std::vector<Peer*> others = peers.Others(shards);
  std::vector<ShardAnswer> answers;
  std::thread asking([&] {
    answers = Peers::AskAll<ShardAnswer>(others, [&](Peer& peer) { return peer.ControlRun(request, asked_by); });
  });
  absl::Status status = here.Ask(request, asked_by, cancelled, response);
  asking.join();

  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].ok()) {
      status = absl::OkStatus();
      for (Process& process : *answers[i]->mutable_processes()) response->add_processes()->Swap(&process);
      if (response->notes().empty()) response->mutable_notes()->Swap(answers[i]->mutable_notes());
    } else if (absl::IsUnavailable(answers[i].status())) {
      v1::MissingShard lost;
      lost.set_shard(others[i]->address());
      lost.set_run(request.run());
      lost.set_why(std::string(answers[i].status().message()));
      missing.Add(std::move(lost));
    } else if (!absl::IsNotFound(answers[i].status())) {
      return answers[i].status();
    }
  }
  std::stable_sort(response->mutable_processes()->begin(), response->mutable_processes()->end(),
                   [](const Process& one, const Process& other) { return Place(one) < Place(other); });
  return status;
}

}  // namespace msprobe::server
