#include "server/control/control_service.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "server/control/cluster_control.h"
#include "server/format/cat.h"
#include "server/shards/missing_trailer.h"

namespace msprobe::server {

absl::Status PinRun(Catalogue& catalogue, Peers* peers, const std::string& run, bool pinned) {
  if (peers == nullptr) return catalogue.SetPinned(run, pinned);
  auto row = catalogue.LookUpRun(run);
  if (!row.ok()) return row.status();
  ShardList shards = peers->shards();
  if (row->has_value()) {
    if (absl::Status status = catalogue.SetPinned(run, pinned); !status.ok()) return status;
    if ((*row)->shards_size() > 0) shards.assign((*row)->shards().begin(), (*row)->shards().end());
  }
  bool any = row->has_value();
  std::vector<std::string> untold;
  for (const absl::Status& status :
       Peers::AskAll<absl::Status>(peers->Others(shards), [&](Peer& peer) { return peer.PinRun(run, pinned); })) {
    any |= status.ok();
    if (!status.ok() && !absl::IsNotFound(status)) untold.push_back(std::string(status.message()));
  }
  if (!untold.empty()) {
    return absl::UnavailableError(
        Cat("not told: ", absl::StrJoin(untold, "; "), "; say it again when all can be reached"));
  }
  if (any) return absl::OkStatus();
  return absl::NotFoundError(
      Cat("no run \"", run, "\" on any of the ", peers->shards().size(), " servers of this cluster"));
}

void DescribeShards(Peers* peers, v1::ServerInfo& info) {
  if (peers == nullptr) return;
  const std::vector<Peer*> others = peers->Others(peers->shards());
  const std::vector<absl::Status> reached =
      Peers::AskAll<absl::Status>(others, [](Peer& peer) { return peer.Reach(); });
  size_t next = 0;
  for (const std::string& address : peers->shards()) {
    v1::Shard& shard = *info.add_shards();
    shard.set_address(address);
    shard.set_here(address == peers->here());
    const absl::Status status = shard.here() ? absl::OkStatus() : reached[next++];
    shard.set_reachable(status.ok());
    if (!status.ok()) shard.set_why(std::string(status.message()));
  }
}

grpc::Status ControlService::ControlRun(grpc::ServerContext* context, const v1::ControlRunRequest* request,
                                        v1::ControlRunResponse* response) {
  const std::string asked_by = AskedBy(*context, *request);
  const auto cancelled = [context] { return context->IsCancelled(); };
  if (peers_ == nullptr) return ToGrpc(runs_->Ask(*request, asked_by, cancelled, response));
  MissingShards missing;
  const absl::Status status =
      AskCluster(*runs_, store_->catalogue(), *peers_, *request, asked_by, cancelled, missing, response);
  return ToGrpc(AnswerWith(missing, status, context));
}

}  // namespace msprobe::server
