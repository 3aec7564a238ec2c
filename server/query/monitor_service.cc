#include "server/query/monitor_service.h"

#include <optional>

#include "server/format/cat.h"
#include "server/ingest/stream/ingest_service.h"
#include "server/monitor/rules/rule_kinds.h"
#include "server/query/answer_query.h"
#include "server/store/alarms.h"

namespace msprobe::server {

grpc::Status MonitorService::ReadSeries(grpc::ServerContext* call, const v1::ReadSeriesRequest* request,
                                        grpc::ServerWriter<v1::Series>* writer) {
  return AnswerQuery(context_, call, [&](const QueryContext& context) {
    return server::ReadSeries(context, *request, SendTo(writer));
  });
}

grpc::Status MonitorService::ListAlarms(grpc::ServerContext* call, const v1::ListAlarmsRequest* request,
                                        grpc::ServerWriter<v1::Alarm>* writer) {
  return AnswerQuery(context_, call, [&](const QueryContext& context) {
    return server::ListAlarms(
        context, *request, [call] { return call->IsCancelled(); }, SendTo(writer));
  });
}

grpc::Status MonitorService::GetRules(grpc::ServerContext* call, const v1::GetRulesRequest* request,
                                      v1::RuleSet* response) {
  return AnswerQuery(context_, call, [&](const QueryContext& context) -> absl::Status {
    // Every server of a run has its rules; one that holds none of it has the same default.
    auto run = context.store->catalogue().LookUpRun(request->run());
    if (!run.ok()) return run.status();
    *response = rules_;
    if (!run->has_value()) return RunView::Open(context.shards(), request->run()).status();
    auto own = Alarms(&context.store->database()).Rules((*run)->number());
    if (own.ok() && own->has_value()) *response = **own;
    return own.status();
  });
}

absl::Status MonitorService::SetRules(const QueryContext& context, const v1::SetRulesRequest& request,
                                      v1::RuleSet& response) const {
  if (absl::Status status = CheckRules(request.rules()); !status.ok()) return status;
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  if (context.missing != nullptr && !context.missing->empty()) {
    return absl::UnavailableError(Cat("rules are set on all servers of run \"", request.run(), "\" or on none; ",
                                      context.missing->Text(), " cannot be reached"));
  }
  for (Peer* peer : view->holders()) {
    if (peer != nullptr) {
      absl::Status status = peer->SetRules(request.run(), request.has_rules() ? &request.rules() : nullptr);
      if (!status.ok()) return status;
      continue;
    }
    auto run = context.store->catalogue().FindRun(request.run());
    if (!run.ok()) return run.status();
    const auto rules = request.has_rules() ? std::optional(request.rules()) : std::nullopt;
    absl::Status status = Alarms(&context.store->database()).SetRules(run->number(), rules);
    if (!status.ok()) return status;
  }
  response = request.has_rules() ? request.rules() : rules_;
  return absl::OkStatus();
}

grpc::Status MonitorService::SetRules(grpc::ServerContext* call, const v1::SetRulesRequest* request,
                                      v1::RuleSet* response) {
  return AnswerQuery(context_, call,
                     [&](const QueryContext& context) { return SetRules(context, *request, *response); });
}

}  // namespace msprobe::server
