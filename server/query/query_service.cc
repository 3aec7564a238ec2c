#include "server/query/query_service.h"

#include "server/ingest/ingest_service.h"
#include "server/query/missing_trailer.h"

namespace msprobe::server {
namespace {

template <typename Message>
Send<Message> To(grpc::ServerWriter<Message>* writer) {
  return [writer](const Message& message) { return writer->Write(message); };
}

}  // namespace

grpc::Status QueryService::Answer(grpc::ServerContext* call,
                                  absl::FunctionRef<absl::Status(const QueryContext&)> work) const {
  Activity::Scope busy(context_.activity);
  MissingShards missing;
  QueryContext context = context_;
  context.missing = &missing;
  const absl::Status status = work(context);
  return ToGrpc(AnswerWith(missing, status, call));
}

grpc::Status QueryService::ListRuns(grpc::ServerContext* call, const v1::ListRunsRequest*,
                                    v1::ListRunsResponse* response) {
  return Answer(call, [&](const QueryContext& context) { return server::ListRuns(context, *response); });
}

grpc::Status QueryService::ListSteps(grpc::ServerContext* call, const v1::ListStepsRequest* request,
                                     grpc::ServerWriter<v1::StepSummary>* writer) {
  return Answer(call, [&](const QueryContext& context) { return server::ListSteps(context, *request, To(writer)); });
}

grpc::Status QueryService::ReadRecords(grpc::ServerContext* call, const v1::ReadRecordsRequest* request,
                                       grpc::ServerWriter<v1::Record>* writer) {
  return Answer(call, [&](const QueryContext& context) { return server::ReadRecords(context, *request, To(writer)); });
}

grpc::Status QueryService::ReadTensor(grpc::ServerContext* call, const v1::ReadTensorRequest* request,
                                      grpc::ServerWriter<v1::FileChunk>* writer) {
  return Answer(call, [&](const QueryContext& context) { return server::ReadTensor(context, *request, To(writer)); });
}

grpc::Status QueryService::Export(grpc::ServerContext* call, const v1::ExportRequest* request,
                                  grpc::ServerWriter<v1::FileChunk>* writer) {
  return Answer(call, [&](const QueryContext& context) { return server::Export(context, *request, To(writer)); });
}

grpc::Status QueryService::Import(grpc::ServerContext* call, grpc::ServerReader<v1::ImportChunk>* reader,
                                  v1::ImportResponse* response) {
  return Answer(call, [&](const QueryContext& context) {
    return server::Import(
        context, [reader](v1::ImportChunk& chunk) { return reader->Read(&chunk); }, *response);
  });
}

grpc::Status QueryService::DeleteRun(grpc::ServerContext* call, const v1::DeleteRunRequest* request,
                                     v1::DeleteRunResponse* response) {
  return Answer(call, [&](const QueryContext& context) { return server::DeleteRun(context, *request, *response); });
}

}  // namespace msprobe::server
