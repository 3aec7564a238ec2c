#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "msprobe/v1/environment.grpc.pb.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// msprobe.v1.Environments: translates between gRPC and the handler.
// Threads: any. What the context names outlives it.
class EnvironmentsService final : public v1::Environments::Service {
 public:
  explicit EnvironmentsService(const QueryContext& context) : context_(context) {}

  grpc::Status ReadEnvironment(grpc::ServerContext* call, const v1::ReadEnvironmentRequest* request,
                               grpc::ServerWriter<v1::ProcessEnvironment>* writer) override;

 private:
  const QueryContext context_;
};

// `cancelled` may be called from any thread.
absl::Status ReadEnvironment(const QueryContext& context, const v1::ReadEnvironmentRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::ProcessEnvironment>& send);

}  // namespace msprobe::server
