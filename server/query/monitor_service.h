#pragma once

#include <grpcpp/grpcpp.h>

#include "msprobe/v1/monitor.grpc.pb.h"
#include "server/query/query_context.h"

namespace msprobe::server {

// msprobe.v1.Monitor: translates between gRPC and the handlers.
class MonitorService final : public v1::Monitor::Service {
 public:
  // rules: of runs that have none of their own.
  MonitorService(QueryContext context, v1::RuleSet rules) : context_(std::move(context)), rules_(std::move(rules)) {}

  grpc::Status ReadSeries(grpc::ServerContext* call, const v1::ReadSeriesRequest* request,
                          grpc::ServerWriter<v1::Series>* writer) override;
  grpc::Status ListAlarms(grpc::ServerContext* call, const v1::ListAlarmsRequest* request,
                          grpc::ServerWriter<v1::Alarm>* writer) override;
  grpc::Status GetRules(grpc::ServerContext* call, const v1::GetRulesRequest* request, v1::RuleSet* response) override;
  grpc::Status SetRules(grpc::ServerContext* call, const v1::SetRulesRequest* request, v1::RuleSet* response) override;

 private:
  absl::Status SetRules(const QueryContext& context, const v1::SetRulesRequest& request, v1::RuleSet& response) const;

  const QueryContext context_;
  const v1::RuleSet rules_;
};

}  // namespace msprobe::server
