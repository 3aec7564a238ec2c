#include "server/query/analysis_service.h"

#include "server/ingest/ingest_service.h"

namespace msprobe::server {

grpc::Status AnalysisService::Compare(grpc::ServerContext* call, const v1::CompareRequest* request,
                                      grpc::ServerWriter<v1::CompareResponse>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::Compare(
      context_, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::CompareResponse& response) { return writer->Write(response); }));
}

grpc::Status AnalysisService::CompareTable(grpc::ServerContext* call, const v1::CompareTableRequest* request,
                                           grpc::ServerWriter<v1::TableChunk>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::CompareTable(
      context_, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::TableChunk& chunk) { return writer->Write(chunk); }));
}

grpc::Status AnalysisService::FirstDivergence(grpc::ServerContext* call, const v1::FirstDivergenceRequest* request,
                                              grpc::ServerWriter<v1::FirstDivergenceResponse>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::FirstDivergence(
      context_, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::FirstDivergenceResponse& response) { return writer->Write(response); }));
}

grpc::Status AnalysisService::Overflow(grpc::ServerContext* call, const v1::OverflowRequest* request,
                                       grpc::ServerWriter<v1::OverflowResponse>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::Overflow(
      context_, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::OverflowResponse& response) { return writer->Write(response); }));
}

grpc::Status AnalysisService::Trend(grpc::ServerContext* call, const v1::TrendRequest* request,
                                    grpc::ServerWriter<v1::TrendResponse>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::Trend(
      context_, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::TrendResponse& response) { return writer->Write(response); }));
}

grpc::Status AnalysisService::Find(grpc::ServerContext* call, const v1::FindRequest* request,
                                   grpc::ServerWriter<v1::FindResponse>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::Find(
      context_, *request, [call] { return call->IsCancelled(); },
      [writer](const v1::FindResponse& response) { return writer->Write(response); }));
}

grpc::Status AnalysisService::PreviewTensor(grpc::ServerContext*, const v1::PreviewTensorRequest* request,
                                            v1::TensorPreview* response) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::PreviewTensor(context_, *request, *response));
}

}  // namespace msprobe::server
