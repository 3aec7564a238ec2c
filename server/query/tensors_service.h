#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "msprobe/v1/tensors.grpc.pb.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// msprobe.v1.Tensors: translates between gRPC and the handlers, and counts what is asked.
// Threads: any. What the context names outlives it.
class TensorsService final : public v1::Tensors::Service {
 public:
  explicit TensorsService(const AnalysisContext& context) : context_(context) {}

  grpc::Status ListTensors(grpc::ServerContext* call, const v1::ListTensorsRequest* request,
                           v1::TensorsInFile* response) override;
  grpc::Status SummarizeTensor(grpc::ServerContext* call, const v1::SummarizeTensorRequest* request,
                               v1::TensorPreview* response) override;
  grpc::Status DiffTensors(grpc::ServerContext* call, const v1::DiffTensorsRequest* request,
                           v1::TensorDiff* response) override;
  grpc::Status ConvertTensors(grpc::ServerContext* call, const v1::ConvertTensorsRequest* request,
                              grpc::ServerWriter<v1::FileChunk>* writer) override;

 private:
  grpc::Status Counted(const char* name, const absl::Status& status);

  const AnalysisContext context_;
};

// `cancelled` may be called from any thread.
absl::Status ListTensors(const AnalysisContext& context, const v1::ListTensorsRequest& request,
                         v1::TensorsInFile& response);
absl::Status SummarizeTensor(const AnalysisContext& context, const v1::SummarizeTensorRequest& request,
                             const std::function<bool()>& cancelled, v1::TensorPreview& response);
absl::Status DiffTensors(const AnalysisContext& context, const v1::DiffTensorsRequest& request,
                         const std::function<bool()>& cancelled, v1::TensorDiff& response);
absl::Status ConvertTensors(const AnalysisContext& context, const v1::ConvertTensorsRequest& request,
                            const Send<v1::FileChunk>& send);

}  // namespace msprobe::server
