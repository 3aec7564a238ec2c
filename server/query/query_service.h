#pragma once

#include <grpcpp/grpcpp.h>

#include "msprobe/v1/query.grpc.pb.h"
#include "server/query/query_context.h"

namespace msprobe::server {

// msprobe.v1.Query: translates between gRPC and the handlers.
class QueryService final : public v1::Query::Service {
 public:
  explicit QueryService(QueryContext context) : context_(std::move(context)) {}

  grpc::Status ListRuns(grpc::ServerContext* call, const v1::ListRunsRequest*, v1::ListRunsResponse* response) override;
  grpc::Status ListSteps(grpc::ServerContext* call, const v1::ListStepsRequest* request,
                         grpc::ServerWriter<v1::StepSummary>* writer) override;
  grpc::Status ReadRecords(grpc::ServerContext* call, const v1::ReadRecordsRequest* request,
                           grpc::ServerWriter<v1::Record>* writer) override;
  grpc::Status ReadTensor(grpc::ServerContext* call, const v1::ReadTensorRequest* request,
                          grpc::ServerWriter<v1::FileChunk>* writer) override;
  grpc::Status Export(grpc::ServerContext* call, const v1::ExportRequest* request,
                      grpc::ServerWriter<v1::FileChunk>* writer) override;
  grpc::Status Import(grpc::ServerContext* call, grpc::ServerReader<v1::ImportChunk>* reader,
                      v1::ImportResponse* response) override;
  grpc::Status DeleteRun(grpc::ServerContext* call, const v1::DeleteRunRequest* request,
                         v1::DeleteRunResponse* response) override;

 private:
  const QueryContext context_;
};

}  // namespace msprobe::server
