#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "msprobe/v1/analysis.grpc.pb.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// msprobe.v1.Analysis: translates between gRPC and the handlers, and counts what is asked.
class AnalysisService final : public v1::Analysis::Service {
 public:
  explicit AnalysisService(AnalysisContext context) : context_(std::move(context)) { context_.layouts = &layouts_; }

  // For others that ask the same; as long as this lives.
  const AnalysisContext& context() const { return context_; }

  grpc::Status Compare(grpc::ServerContext* call, const v1::CompareRequest* request,
                       grpc::ServerWriter<v1::CompareResponse>* writer) override;
  grpc::Status CompareTable(grpc::ServerContext* call, const v1::CompareTableRequest* request,
                            grpc::ServerWriter<v1::TableChunk>* writer) override;
  grpc::Status FirstDivergence(grpc::ServerContext* call, const v1::FirstDivergenceRequest* request,
                               grpc::ServerWriter<v1::FirstDivergenceResponse>* writer) override;
  grpc::Status Overflow(grpc::ServerContext* call, const v1::OverflowRequest* request,
                        grpc::ServerWriter<v1::OverflowResponse>* writer) override;
  grpc::Status Replicas(grpc::ServerContext* call, const v1::ReplicasRequest* request,
                        grpc::ServerWriter<v1::ReplicasResponse>* writer) override;
  grpc::Status Trend(grpc::ServerContext* call, const v1::TrendRequest* request,
                     grpc::ServerWriter<v1::TrendResponse>* writer) override;
  grpc::Status Find(grpc::ServerContext* call, const v1::FindRequest* request,
                    grpc::ServerWriter<v1::FindResponse>* writer) override;
  grpc::Status Graph(grpc::ServerContext* call, const v1::GraphRequest* request,
                     grpc::ServerWriter<v1::GraphResponse>* writer) override;
  grpc::Status TrendDatabase(grpc::ServerContext* call, const v1::TrendDatabaseRequest* request,
                             grpc::ServerWriter<v1::TrendDatabaseResponse>* writer) override;
  grpc::Status PreviewTensor(grpc::ServerContext* call, const v1::PreviewTensorRequest* request,
                             v1::TensorPreview* response) override;
  grpc::Status Measure(grpc::ServerContext* call,
                       grpc::ServerReaderWriter<v1::MeasureResponse, v1::MeasureRequest>* stream) override;
  grpc::Status Judge(grpc::ServerContext* call, const v1::JudgeRequest* request, v1::JudgeResponse* response) override;

 private:
  template <typename Request, typename Response>
  using Handler = absl::Status (*)(const AnalysisContext& context, const Request& request,
                                   const std::function<bool()>& cancelled, const Send<Response>& send);

  // Counts it, under its kind and how it ended.
  grpc::Status Answer(const char* kind, grpc::ServerContext* call,
                      absl::FunctionRef<absl::Status(const AnalysisContext&)> work);
  template <typename Request, typename Response>
  grpc::Status Stream(const char* kind, Handler<Request, Response> handler, grpc::ServerContext* call,
                      const Request& request, grpc::ServerWriter<Response>* writer);

  TableLayouts layouts_;
  AnalysisContext context_;  // constant after construction
  std::atomic<int> under_way_ = 0;
};

}  // namespace msprobe::server
