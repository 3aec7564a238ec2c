#include "server/format/cat.h"
#include "server/query/query_context.h"

namespace msprobe::server {

absl::Status DeleteRun(const QueryContext& context, const v1::DeleteRunRequest& request,
                       v1::DeleteRunResponse& response) {
  auto run = context.store->FindRun(request.run());
  if (!run.ok()) return run.status();
  if (context.sessions->has_users_in(run->number())) {
    return absl::FailedPreconditionError(
        Cat("run \"", request.run(), "\" is being captured; end its processes, then delete it"));
  }
  auto deleted = context.store->DeleteRun(request.run());
  if (!deleted.ok()) return deleted.status();
  response.set_row_bytes(deleted->row_bytes);
  response.set_payload_bytes(deleted->payload_bytes);
  return absl::OkStatus();
}

}  // namespace msprobe::server
