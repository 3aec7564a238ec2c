#include "server/query/analysis_service.h"

#include "server/ingest/stream/ingest_service.h"
#include "server/shards/missing_trailer.h"

namespace msprobe::server {

grpc::Status AnalysisService::Answer(const char* kind, grpc::ServerContext* call,
                                     absl::FunctionRef<absl::Status(const AnalysisContext&)> work) {
  Activity::Scope busy(context_.activity);
  context_.metrics->Set(Metric::kAnalysesUnderWay, ++under_way_);
  MissingShards missing;
  AnalysisContext context = context_;
  context.missing = &missing;
  absl::Status status = work(context);
  status = AnswerWith(missing, std::move(status), call);
  context_.metrics->Set(Metric::kAnalysesUnderWay, --under_way_);
  context_.metrics->Add(Metric::kAnalyses, 1,
                        {kind, status.ok()                 ? "ok"
                               : absl::IsCancelled(status) ? "cancelled"
                                                           : "error"});
  return ToGrpc(status);
}

template <typename Request, typename Response>
grpc::Status AnalysisService::Stream(const char* kind, Handler<Request, Response> handler, grpc::ServerContext* call,
                                     const Request& request, grpc::ServerWriter<Response>* writer) {
  return Answer(kind, call, [&](const AnalysisContext& context) {
    return handler(
        context, request, [call] { return call->IsCancelled(); },
        [writer](const Response& response) { return writer->Write(response); });
  });
}

grpc::Status AnalysisService::Compare(grpc::ServerContext* call, const v1::CompareRequest* request,
                                      grpc::ServerWriter<v1::CompareResponse>* writer) {
  return Stream("compare", server::Compare, call, *request, writer);
}

grpc::Status AnalysisService::CompareTable(grpc::ServerContext* call, const v1::CompareTableRequest* request,
                                           grpc::ServerWriter<v1::TableChunk>* writer) {
  return Stream("compare_table", server::CompareTable, call, *request, writer);
}

grpc::Status AnalysisService::FirstDivergence(grpc::ServerContext* call, const v1::FirstDivergenceRequest* request,
                                              grpc::ServerWriter<v1::FirstDivergenceResponse>* writer) {
  return Stream("first_divergence", server::FirstDivergence, call, *request, writer);
}

grpc::Status AnalysisService::Overflow(grpc::ServerContext* call, const v1::OverflowRequest* request,
                                       grpc::ServerWriter<v1::OverflowResponse>* writer) {
  return Stream("overflow", server::Overflow, call, *request, writer);
}

grpc::Status AnalysisService::Replicas(grpc::ServerContext* call, const v1::ReplicasRequest* request,
                                       grpc::ServerWriter<v1::ReplicasResponse>* writer) {
  return Stream("replicas", server::CompareReplicas, call, *request, writer);
}

grpc::Status AnalysisService::Trend(grpc::ServerContext* call, const v1::TrendRequest* request,
                                    grpc::ServerWriter<v1::TrendResponse>* writer) {
  return Stream("trend", server::Trend, call, *request, writer);
}

grpc::Status AnalysisService::Find(grpc::ServerContext* call, const v1::FindRequest* request,
                                   grpc::ServerWriter<v1::FindResponse>* writer) {
  return Stream("find", server::Find, call, *request, writer);
}

grpc::Status AnalysisService::Graph(grpc::ServerContext* call, const v1::GraphRequest* request,
                                    grpc::ServerWriter<v1::GraphResponse>* writer) {
  return Stream("graph", server::Graph, call, *request, writer);
}

grpc::Status AnalysisService::TrendDatabase(grpc::ServerContext* call, const v1::TrendDatabaseRequest* request,
                                            grpc::ServerWriter<v1::TrendDatabaseResponse>* writer) {
  return Stream("trend_database", server::WriteTrendDatabase, call, *request, writer);
}

grpc::Status AnalysisService::PreviewTensor(grpc::ServerContext* call, const v1::PreviewTensorRequest* request,
                                            v1::TensorPreview* response) {
  return Answer("preview_tensor", call,
                [&](const AnalysisContext& context) { return server::PreviewTensor(context, *request, *response); });
}

grpc::Status AnalysisService::Measure(grpc::ServerContext* call,
                                      grpc::ServerReaderWriter<v1::MeasureResponse, v1::MeasureRequest>* stream) {
  return Answer("measure", call, [&](const AnalysisContext&) {
    return server::Measure([stream](v1::MeasureRequest& request) { return stream->Read(&request); },
                           [stream](const v1::MeasureResponse& response) { return stream->Write(response); });
  });
}

grpc::Status AnalysisService::Judge(grpc::ServerContext* call, const v1::JudgeRequest* request,
                                    v1::JudgeResponse* response) {
  return Answer("judge", call, [&](const AnalysisContext&) { return server::Judge(*request, *response); });
}

}  // namespace msprobe::server
