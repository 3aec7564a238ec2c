#include "server/app/grpc_services.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "server/app/authorizer.h"
#include "server/control/cluster_control.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// For one comparison of tensors.
int AnalysisThreads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u)); }

}  // namespace

GrpcServices::GrpcServices(const ServerOptions& options, const ServiceParts& parts)
    : store_(parts.store),
      sessions_(parts.sessions),
      job_queue_(parts.jobs),
      metrics_(parts.metrics),
      activity_(parts.activity),
      throttle_(options.write_buffer_bytes()) {
  IngestOptions ingest{
      .max_streams = 2 * options.max_sessions, .max_streams_of_a_peer = options.max_streams_per_peer, .server_of = {}};
  QueryContext context = query();
  context.spool_directory = Cat(options.data_dir, "/incoming");
  run_control_ = std::make_unique<RunControl>(sessions_, &store_->catalogue());
  if (!options.cluster.shards.empty()) {
    peers_ = std::make_unique<Peers>(options.cluster);
    placement_ = std::make_unique<Placement>(store_, peers_.get());
    ingest.server_of = [this](const v1::Hello& hello, const Caller& caller) {
      return placement_->ServerOf(hello, caller.identity);
    };
    shards_ = std::make_unique<ShardService>(
        context, [runs = run_control_.get()](auto&&... asked) { return runs->Ask(asked...); });
    context.peers = peers_.get();
  }
  ingest_ = std::make_unique<IngestService>(sessions_, &store_->database(), metrics_, std::move(ingest));
  query_ = std::make_unique<QueryService>(context);
  analysis_ = std::make_unique<AnalysisService>(AnalysisContext{.store = store_,
                                                                .activity = activity_,
                                                                .metrics = metrics_,
                                                                .paths_allowed = options.embedded.enabled,
                                                                .spool_directory = context.spool_directory,
                                                                .threads = AnalysisThreads(),
                                                                .peers = peers_.get()});
  report_ = std::make_unique<ReportService>(query(), analysis_->context());
  gradients_ = std::make_unique<GradientsService>(analysis_->context());
  communications_ = std::make_unique<CommunicationsService>(analysis_->context());
  checkpoints_ = std::make_unique<CheckpointsService>(analysis_->context());
  environments_ = std::make_unique<EnvironmentsService>(query());
  tensors_ = std::make_unique<TensorsService>(analysis_->context());
  if (!options.metrics_listen.empty()) agent_queues_ = std::make_unique<AgentQueues>(sessions_, metrics_);
  ingest_->OnReport([this](const std::string& session, const v1::ControlReport& report) {
    run_control_->Report(session, report);
    if (agent_queues_ != nullptr) agent_queues_->Report(session, report);
  });
  std::function<std::string(std::string_view)> bearer;
  if (parts.tokens != nullptr) {
    bearer = [who = Authorizer(parts.tokens, metrics_, parts.refusals)](std::string_view header) {
      return who.NameOf(header);
    };
  }
  auto info = [this, of_server = parts.info] {
    v1::ServerInfo info = of_server();
    DescribeShards(peers_.get(), info);
    return info;
  };
  control_ = std::make_unique<ControlService>(std::move(info), parts.drain, store_, Cat(options.data_dir, "/backups"),
                                              run_control_.get(), std::move(bearer), peers_.get());
  jobs_ = std::make_unique<JobsService>(parts.jobs, activity_);
  monitor_ = std::make_unique<MonitorService>(query(), options.rules);
}

void GrpcServices::Register(grpc::ServerBuilder& builder) {
  builder.RegisterService(ingest_.get());
  builder.RegisterService(query_.get());
  builder.RegisterService(analysis_.get());
  builder.RegisterService(report_.get());
  builder.RegisterService(gradients_.get());
  builder.RegisterService(communications_.get());
  builder.RegisterService(checkpoints_.get());
  builder.RegisterService(environments_.get());
  builder.RegisterService(tensors_.get());
  builder.RegisterService(control_.get());
  builder.RegisterService(jobs_.get());
  builder.RegisterService(monitor_.get());
  if (shards_ != nullptr) builder.RegisterService(shards_.get());
}

void GrpcServices::Tick(absl::Time now) {
  if (agent_queues_ != nullptr) agent_queues_->Tick(now);
  if (now - throttled_ < absl::Seconds(1)) return;
  throttled_ = now;
  ingest_->Slow(throttle_.Look(store_->database().write_buffer_usage(), ingest_->streams()));
}

absl::StatusOr<v1::ControlRunResponse> GrpcServices::AskRun(const v1::ControlRunRequest& request,
                                                            const std::string& asked_by,
                                                            const std::function<bool()>& cancelled) {
  v1::ControlRunResponse response;
  MissingShards missing;
  const absl::Status status = peers_ == nullptr ? run_control_->Ask(request, asked_by, cancelled, &response)
                                                : AskCluster(*run_control_, store_->catalogue(), *peers_, request,
                                                             asked_by, cancelled, missing, &response);
  if (!status.ok()) return status;
  return response;
}

QueryContext GrpcServices::query() const {
  return {.store = store_,
          .sessions = sessions_,
          .metrics = metrics_,
          .activity = activity_,
          .spool_directory = {},
          .peers = peers_.get(),
          .jobs = job_queue_};
}

}  // namespace msprobe::server
