#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "msprobe/v1/checkpoints.grpc.pb.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// msprobe.v1.Checkpoints: translates between gRPC and the handler, and counts what is asked.
// Threads: any. What the context names outlives it.
class CheckpointsService final : public v1::Checkpoints::Service {
 public:
  explicit CheckpointsService(const AnalysisContext& context) : context_(context) {}

  grpc::Status DiffCheckpoints(grpc::ServerContext* call, const v1::DiffCheckpointsRequest* request,
                               grpc::ServerWriter<v1::DiffCheckpointsResponse>* writer) override;
  grpc::Status CompareWeights(grpc::ServerContext* call, const v1::CompareWeightsRequest* request,
                              grpc::ServerWriter<v1::CompareWeightsResponse>* writer) override;

 private:
  const AnalysisContext context_;
};

// One file each. `cancelled` may be called from any thread.
absl::Status DiffCheckpoints(const AnalysisContext& context, const v1::DiffCheckpointsRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::DiffCheckpointsResponse>& send);
absl::Status CompareWeights(const AnalysisContext& context, const v1::CompareWeightsRequest& request,
                            const std::function<bool()>& cancelled, const Send<v1::CompareWeightsResponse>& send);

}  // namespace msprobe::server
