#include "server/query/tensors_service.h"

#include "server/ingest/stream/ingest_service.h"

namespace msprobe::server {

grpc::Status TensorsService::Counted(const char* name, const absl::Status& status) {
  const char* const result = status.ok() ? "ok" : absl::IsCancelled(status) ? "cancelled" : "error";
  context_.metrics->Add(Metric::kAnalyses, 1, {name, result});
  return ToGrpc(status);
}

grpc::Status TensorsService::ListTensors(grpc::ServerContext*, const v1::ListTensorsRequest* request,
                                         v1::TensorsInFile* response) {
  Activity::Scope busy(context_.activity);
  return Counted("list_tensors", server::ListTensors(context_, *request, *response));
}

grpc::Status TensorsService::SummarizeTensor(grpc::ServerContext* call, const v1::SummarizeTensorRequest* request,
                                             v1::TensorPreview* response) {
  Activity::Scope busy(context_.activity);
  const auto cancelled = [call] { return call->IsCancelled(); };
  return Counted("summarize_tensor", server::SummarizeTensor(context_, *request, cancelled, *response));
}

grpc::Status TensorsService::DiffTensors(grpc::ServerContext* call, const v1::DiffTensorsRequest* request,
                                         v1::TensorDiff* response) {
  Activity::Scope busy(context_.activity);
  const auto cancelled = [call] { return call->IsCancelled(); };
  return Counted("diff_tensors", server::DiffTensors(context_, *request, cancelled, *response));
}

grpc::Status TensorsService::ConvertTensors(grpc::ServerContext*, const v1::ConvertTensorsRequest* request,
                                            grpc::ServerWriter<v1::FileChunk>* writer) {
  Activity::Scope busy(context_.activity);
  const auto send = [writer](const v1::FileChunk& chunk) { return writer->Write(chunk); };
  return Counted("convert_tensors", server::ConvertTensors(context_, *request, send));
}

}  // namespace msprobe::server
