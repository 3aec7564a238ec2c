#include "server/query/environments_service.h"

#include <map>

#include "server/query/answer_query.h"
#include "server/shards/run_view.h"

namespace msprobe::server {

grpc::Status EnvironmentsService::ReadEnvironment(grpc::ServerContext* call, const v1::ReadEnvironmentRequest* request,
                                                  grpc::ServerWriter<v1::ProcessEnvironment>* writer) {
  return AnswerQuery(context_, call, [&](const QueryContext& context) {
    return server::ReadEnvironment(
        context, *request, [call] { return call->IsCancelled(); },
        [writer](const v1::ProcessEnvironment& process) { return writer->Write(process); });
  });
}

absl::Status ReadEnvironment(const QueryContext& context, const v1::ReadEnvironmentRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::ProcessEnvironment>& send) {
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  std::map<uint32_t, const ShownStep*> latest;  // by rank
  for (const ShownStep& step : view->steps()) latest[step.key.rank] = &step;
  for (const auto& [rank, step] : latest) {
    if (cancelled()) return PeerGone();
    auto source = view->Records(*step);
    if (!source.ok()) return source.status();
    const v1::Hello& hello = (*source)->hello();
    v1::ProcessEnvironment process;
    *process.mutable_rank() = (*source)->rank();
    process.set_host(hello.host());
    process.set_process_id(hello.process_id());
    process.set_started_unix_us(hello.started_unix_us());
    process.set_program(hello.program());
    process.set_agent_version(hello.agent_version());
    process.set_framework_version(hello.framework_version());
    *process.mutable_settings() = (*source)->settings();
    *process.mutable_environment() = hello.environment();
    *process.mutable_devices() = hello.devices();
    if (!send(process)) return PeerGone();
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
