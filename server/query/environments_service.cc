#include "server/query/environments_service.h"

#include <map>

#include "server/format/storage/key.h"
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

namespace {

v1::ProcessEnvironment EnvironmentOf(const v1::Hello& hello, const v1::Rank& rank,
                                     const v1::CaptureSettings& settings) {
  v1::ProcessEnvironment process;
  *process.mutable_rank() = rank;
  process.set_host(hello.host());
  process.set_process_id(hello.process_id());
  process.set_started_unix_us(hello.started_unix_us());
  process.set_program(hello.program());
  process.set_agent_version(hello.agent_version());
  process.set_framework_version(hello.framework_version());
  *process.mutable_settings() = settings;
  *process.mutable_environment() = hello.environment();
  *process.mutable_devices() = hello.devices();
  if (hello.has_checkout()) *process.mutable_checkout() = hello.checkout();
  return process;
}

// Of ranks that have captured no step (task monitor), and are on this server: the session that began last.
absl::Status AddWithoutSteps(const Store& store, const std::string& name,
                             std::map<uint32_t, v1::ProcessEnvironment>& found) {
  auto run = store.catalogue().LookUpRun(name);
  if (!run.ok()) return run.status();
  if (!run->has_value()) return absl::OkStatus();
  auto sessions = store.catalogue().Sessions((*run)->number());
  if (!sessions.ok()) return sessions.status();
  std::map<uint32_t, const v1::Hello*> latest;
  for (const storage::SessionRow& session : *sessions) {
    const v1::Hello& hello = session.hello();
    if (found.contains(RankCode(hello.rank()))) continue;
    const v1::Hello*& last = latest[RankCode(hello.rank())];
    if (last == nullptr || last->started_unix_us() <= hello.started_unix_us()) last = &hello;
  }
  for (const auto& [rank, hello] : latest) found[rank] = EnvironmentOf(*hello, hello->rank(), hello->settings());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadEnvironment(const QueryContext& context, const v1::ReadEnvironmentRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::ProcessEnvironment>& send) {
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  std::map<uint32_t, const ShownStep*> latest;  // by rank
  for (const ShownStep& step : view->steps()) latest[step.key.rank] = &step;
  std::map<uint32_t, v1::ProcessEnvironment> found;
  for (const auto& [rank, step] : latest) {
    if (cancelled()) return PeerGone();
    auto source = view->Records(*step);
    if (!source.ok()) return source.status();
    found[rank] = EnvironmentOf((*source)->hello(), (*source)->rank(), (*source)->settings());
  }
  if (absl::Status status = AddWithoutSteps(*context.store, request.run(), found); !status.ok()) return status;
  for (const auto& [rank, process] : found) {
    if (!send(process)) return PeerGone();
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
