#include <algorithm>

#include "server/format/cat.h"
#include "server/query/query_context.h"

namespace msprobe::server {

namespace {

absl::Status InUse(const std::string& run) {
  return absl::FailedPreconditionError(Cat("run \"", run, "\" is being captured; end its processes, then delete it"));
}

// Everywhere or, where that cannot be, nowhere: what is deleted on some servers only would come back with the others.
absl::Status DeleteEverywhere(const QueryContext& context, const v1::DeleteRunRequest& request,
                              v1::DeleteRunResponse& response) {
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  if (!context.missing->empty()) {
    return absl::UnavailableError(Cat("run \"", request.run(), "\" is deleted on all of its servers or on none; ",
                                      context.missing->Text(), " cannot be reached"));
  }
  if (view->in_use_elsewhere()) return InUse(request.run());
  QueryContext alone = context;
  alone.peers = nullptr;
  std::vector<Peer*> holders = view->holders();
  if (std::find(holders.begin(), holders.end(), nullptr) != holders.end()) {
    auto run = context.store->catalogue().FindRun(request.run());
    if (!run.ok()) return run.status();
    if (context.sessions->has_users_in(run->number())) return InUse(request.run());
  }
  // This server last: another may refuse this one's token, and then nothing is deleted anywhere.
  std::sort(holders.rbegin(), holders.rend());
  for (Peer* peer : holders) {
    v1::DeleteRunResponse deleted;
    if (peer == nullptr) {
      if (absl::Status status = DeleteRun(alone, request, deleted); !status.ok()) return status;
    } else {
      auto answer = peer->DeleteRun(request.run());
      if (!answer.ok()) return answer.status();
      deleted.set_row_bytes(answer->row_bytes());
      deleted.set_payload_bytes(answer->payload_bytes());
    }
    response.set_row_bytes(response.row_bytes() + deleted.row_bytes());
    response.set_payload_bytes(response.payload_bytes() + deleted.payload_bytes());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DeleteRun(const QueryContext& context, const v1::DeleteRunRequest& request,
                       v1::DeleteRunResponse& response) {
  if (context.peers != nullptr) return DeleteEverywhere(context, request, response);
  auto run = context.store->catalogue().FindRun(request.run());
  if (!run.ok()) return run.status();
  if (context.sessions->has_users_in(run->number())) return InUse(request.run());
  auto deleted = context.store->maintenance().DeleteRun(request.run());
  if (!deleted.ok()) return deleted.status();
  response.set_row_bytes(deleted->row_bytes);
  response.set_payload_bytes(deleted->payload_bytes);
  return absl::OkStatus();
}

}  // namespace msprobe::server
