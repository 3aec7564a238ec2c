#include "server/query/checkpoints_service.h"

#include "server/ingest/stream/ingest_service.h"

namespace msprobe::server {

grpc::Status CheckpointsService::DiffCheckpoints(grpc::ServerContext* call, const v1::DiffCheckpointsRequest* request,
                                                 grpc::ServerWriter<v1::DiffCheckpointsResponse>* writer) {
  Activity::Scope busy(context_.activity);
  const absl::Status status = server::DiffCheckpoints(
      context_, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::DiffCheckpointsResponse& response) { return writer->Write(response); });
  const char* const result = status.ok() ? "ok" : absl::IsCancelled(status) ? "cancelled" : "error";
  context_.metrics->Add(Metric::kAnalyses, 1, {"diff_checkpoints", result});
  return ToGrpc(status);
}

}  // namespace msprobe::server
