#include "server/query/query_service.h"

#include "server/ingest/ingest_service.h"

namespace msprobe::server {
namespace {

template <typename Message>
Send<Message> To(grpc::ServerWriter<Message>* writer) {
  return [writer](const Message& message) { return writer->Write(message); };
}

}  // namespace

grpc::Status QueryService::ListRuns(grpc::ServerContext*, const v1::ListRunsRequest*, v1::ListRunsResponse* response) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::ListRuns(context_, *response));
}

grpc::Status QueryService::ListSteps(grpc::ServerContext*, const v1::ListStepsRequest* request,
                                     grpc::ServerWriter<v1::StepSummary>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::ListSteps(context_, *request, To(writer)));
}

grpc::Status QueryService::ReadRecords(grpc::ServerContext*, const v1::ReadRecordsRequest* request,
                                       grpc::ServerWriter<v1::Record>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::ReadRecords(context_, *request, To(writer)));
}

grpc::Status QueryService::ReadTensor(grpc::ServerContext*, const v1::ReadTensorRequest* request,
                                      grpc::ServerWriter<v1::FileChunk>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::ReadTensor(context_, *request, To(writer)));
}

grpc::Status QueryService::Export(grpc::ServerContext*, const v1::ExportRequest* request,
                                  grpc::ServerWriter<v1::FileChunk>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::Export(context_, *request, To(writer)));
}

grpc::Status QueryService::Import(grpc::ServerContext*, grpc::ServerReader<v1::ImportChunk>* reader,
                                  v1::ImportResponse* response) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::Import(
      context_, [reader](v1::ImportChunk& chunk) { return reader->Read(&chunk); }, *response));
}

grpc::Status QueryService::DeleteRun(grpc::ServerContext*, const v1::DeleteRunRequest* request,
                                     v1::DeleteRunResponse* response) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(server::DeleteRun(context_, *request, *response));
}

}  // namespace msprobe::server
