#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "msprobe/v1/gradients.grpc.pb.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// msprobe.v1.Gradients: translates between gRPC and the handler, and counts what is asked.
// Threads: any. What the context names outlives it.
class GradientsService final : public v1::Gradients::Service {
 public:
  explicit GradientsService(const AnalysisContext& context) : context_(context) {}

  grpc::Status CompareSigns(grpc::ServerContext* call, const v1::CompareSignsRequest* request,
                            grpc::ServerWriter<v1::CompareSignsResponse>* writer) override;

 private:
  const AnalysisContext context_;
};

// `cancelled` may be called from any thread.
absl::Status CompareSigns(const AnalysisContext& context, const v1::CompareSignsRequest& request,
                          const std::function<bool()>& cancelled, const Send<v1::CompareSignsResponse>& send);

}  // namespace msprobe::server
