#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <utility>

#include "server/query/query_context.h"
#include "server/shards/shards.grpc.pb.h"

namespace msprobe::server {

// msprobe.shards.Shards: what the other servers of the cluster ask. From this server's store, and from nothing else.
class ShardService final : public shards::Shards::Service {
 public:
  // RunControl::Ask of this server.
  using Control = std::function<absl::Status(const v1::ControlRunRequest& request, const std::string& asked_by,
                                             const std::function<bool()>& cancelled, v1::ControlRunResponse* response)>;

  ShardService(QueryContext context, Control control) : context_(std::move(context)), control_(std::move(control)) {}

  grpc::Status FindRun(grpc::ServerContext*, const shards::FindRunRequest* request,
                       shards::FindRunResponse* response) override;
  grpc::Status PlaceRun(grpc::ServerContext*, const shards::PlaceRunRequest* request,
                        shards::PlaceRunResponse* response) override;
  grpc::Status ListRuns(grpc::ServerContext*, const shards::ListRunsRequest*,
                        grpc::ServerWriter<shards::RunPart>* writer) override;
  grpc::Status ReadRun(grpc::ServerContext*, const shards::ReadRunRequest* request,
                       grpc::ServerWriter<shards::RunPart>* writer) override;
  grpc::Status ReadStep(grpc::ServerContext*, const shards::ReadStepRequest* request,
                        grpc::ServerWriter<shards::StepPart>* writer) override;
  grpc::Status ReadPayload(grpc::ServerContext*, const shards::ReadPayloadRequest* request,
                           grpc::ServerWriter<shards::PayloadPart>* writer) override;
  grpc::Status ReadSeries(grpc::ServerContext*, const shards::ReadSeriesRequest* request,
                          grpc::ServerWriter<shards::SeriesPart>* writer) override;
  grpc::Status ListAlarms(grpc::ServerContext*, const shards::ListAlarmsRequest* request,
                          grpc::ServerWriter<v1::Alarm>* writer) override;
  grpc::Status SetRules(grpc::ServerContext*, const shards::SetRulesRequest* request,
                        shards::SetRulesResponse*) override;
  grpc::Status PinRun(grpc::ServerContext*, const shards::PinRunRequest* request, shards::PinRunResponse*) override;
  grpc::Status DeleteRun(grpc::ServerContext*, const shards::DeleteRunRequest* request,
                         shards::DeleteRunResponse* response) override;
  grpc::Status ControlRun(grpc::ServerContext* call, const shards::ControlRunRequest* request,
                          v1::ControlRunResponse* response) override;

 private:
  const QueryContext context_;  // without peers
  const Control control_;
};

}  // namespace msprobe::server
