#include "server/query/gradients_service.h"

#include <utility>

#include "server/ingest/stream/ingest_service.h"
#include "server/shards/missing_trailer.h"

namespace msprobe::server {

grpc::Status GradientsService::CompareSigns(grpc::ServerContext* call, const v1::CompareSignsRequest* request,
                                            grpc::ServerWriter<v1::CompareSignsResponse>* writer) {
  Activity::Scope busy(context_.activity);
  MissingShards missing;
  AnalysisContext context = context_;
  context.missing = &missing;
  absl::Status status = server::CompareSigns(
      context, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::CompareSignsResponse& response) { return writer->Write(response); });
  status = AnswerWith(missing, std::move(status), call);
  const char* const result = status.ok() ? "ok" : absl::IsCancelled(status) ? "cancelled" : "error";
  context_.metrics->Add(Metric::kAnalyses, 1, {"compare_signs", result});
  return ToGrpc(status);
}

}  // namespace msprobe::server
