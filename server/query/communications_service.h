#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "msprobe/v1/communication.grpc.pb.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// msprobe.v1.Communications: translates between gRPC and the handlers, and counts what is asked.
// Threads: any. What the context names outlives it.
class CommunicationsService final : public v1::Communications::Service {
 public:
  explicit CommunicationsService(const AnalysisContext& context) : context_(context) {}

  grpc::Status FindMismatches(grpc::ServerContext* call, const v1::FindMismatchesRequest* request,
                              grpc::ServerWriter<v1::FindMismatchesResponse>* writer) override;
  grpc::Status FindHang(grpc::ServerContext* call, const v1::FindHangRequest* request,
                        v1::FindHangResponse* response) override;

 private:
  grpc::Status Answer(const char* kind, grpc::ServerContext* call,
                      absl::FunctionRef<absl::Status(const AnalysisContext&)> work);

  const AnalysisContext context_;
};

// `cancelled` may be called from any thread.
absl::Status FindMismatches(const AnalysisContext& context, const v1::FindMismatchesRequest& request,
                            const std::function<bool()>& cancelled, const Send<v1::FindMismatchesResponse>& send);
absl::Status FindHang(const AnalysisContext& context, const v1::FindHangRequest& request,
                      const std::function<bool()>& cancelled, v1::FindHangResponse& response);

}  // namespace msprobe::server
