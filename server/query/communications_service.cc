#include "server/query/communications_service.h"

#include <utility>

#include "server/ingest/stream/ingest_service.h"
#include "server/shards/missing_trailer.h"

namespace msprobe::server {

grpc::Status CommunicationsService::Answer(const char* kind, grpc::ServerContext* call,
                                           absl::FunctionRef<absl::Status(const AnalysisContext&)> work) {
  Activity::Scope busy(context_.activity);
  MissingShards missing;
  AnalysisContext context = context_;
  context.missing = &missing;
  absl::Status status = AnswerWith(missing, work(context), call);
  const char* const result = status.ok() ? "ok" : absl::IsCancelled(status) ? "cancelled" : "error";
  context_.metrics->Add(Metric::kAnalyses, 1, {kind, result});
  return ToGrpc(status);
}

grpc::Status CommunicationsService::FindMismatches(grpc::ServerContext* call, const v1::FindMismatchesRequest* request,
                                                   grpc::ServerWriter<v1::FindMismatchesResponse>* writer) {
  return Answer("find_mismatches", call, [&](const AnalysisContext& context) {
    return server::FindMismatches(
        context, *request, [call] { return call->IsCancelled(); },
        [writer](const v1::FindMismatchesResponse& response) { return writer->Write(response); });
  });
}

grpc::Status CommunicationsService::FindHang(grpc::ServerContext* call, const v1::FindHangRequest* request,
                                             v1::FindHangResponse* response) {
  return Answer("find_hang", call, [&](const AnalysisContext& context) {
    return server::FindHang(
        context, *request, [call] { return call->IsCancelled(); }, *response);
  });
}

}  // namespace msprobe::server
