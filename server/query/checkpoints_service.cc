#include "server/query/checkpoints_service.h"

#include "server/ingest/stream/ingest_service.h"

namespace msprobe::server {

namespace {

grpc::Status Counted(const AnalysisContext& context, const char* what, const absl::Status& status) {
  const char* const result = status.ok() ? "ok" : absl::IsCancelled(status) ? "cancelled" : "error";
  context.metrics->Add(Metric::kAnalyses, 1, {what, result});
  return ToGrpc(status);
}

}  // namespace

grpc::Status CheckpointsService::DiffCheckpoints(grpc::ServerContext* call, const v1::DiffCheckpointsRequest* request,
                                                 grpc::ServerWriter<v1::DiffCheckpointsResponse>* writer) {
  Activity::Scope busy(context_.activity);
  return Counted(context_, "diff_checkpoints",
                 server::DiffCheckpoints(
                     context_, *request, [call] { return call->IsCancelled(); },
                     [writer](const v1::DiffCheckpointsResponse& response) { return writer->Write(response); }));
}

grpc::Status CheckpointsService::CompareWeights(grpc::ServerContext* call, const v1::CompareWeightsRequest* request,
                                                grpc::ServerWriter<v1::CompareWeightsResponse>* writer) {
  Activity::Scope busy(context_.activity);
  return Counted(context_, "compare_weights",
                 server::CompareWeights(
                     context_, *request, [call] { return call->IsCancelled(); },
                     [writer](const v1::CompareWeightsResponse& response) { return writer->Write(response); }));
}

}  // namespace msprobe::server
