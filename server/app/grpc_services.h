#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "server/access/refusal_log.h"
#include "server/access/tokens.h"
#include "server/app/server_options.h"
#include "server/control/agent_queues.h"
#include "server/control/control_service.h"
#include "server/control/run_control.h"
#include "server/ingest/session/sessions.h"
#include "server/ingest/stream/ingest_service.h"
#include "server/ingest/stream/throttle.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/jobs_service.h"
#include "server/metrics/activity.h"
#include "server/metrics/metrics.h"
#include "server/query/analysis_service.h"
#include "server/query/checkpoints_service.h"
#include "server/query/communications_service.h"
#include "server/query/environments_service.h"
#include "server/query/gradients_service.h"
#include "server/query/monitor_service.h"
#include "server/query/query_service.h"
#include "server/query/shard_service.h"
#include "server/query/tensors_service.h"
#include "server/shards/peers.h"
#include "server/shards/placement.h"
#include "server/store/store.h"
#include "server/web/report_service.h"

namespace msprobe::server {

// The parts of a server that its services use. Borrowed; they outlive the services.
struct ServiceParts {
  Store* store = nullptr;
  Sessions* sessions = nullptr;
  JobQueue* jobs = nullptr;
  Metrics* metrics = nullptr;
  Activity* activity = nullptr;
  Tokens* tokens = nullptr;  // null: no token is needed
  RefusalLog* refusals = nullptr;
  std::function<v1::ServerInfo()> info;  // without the state of the cluster
  std::function<void()> drain;
};

// The gRPC services of a server, and the parts that only they use.
// Threads: Tick from one; the services are called from gRPC's threads.
class GrpcServices {
 public:
  // Borrows the options.
  GrpcServices(const ServerOptions& options, const ServiceParts& parts);

  void Register(grpc::ServerBuilder& builder);
  // May be called often; works about once a second. Slows senders down when memory is short, and asks agents for their
  // queues.
  void Tick(absl::Time now);
  // Asks all streams to end. False: some have not ended in time.
  bool EndStreams(absl::Duration timeout) { return ingest_->EndStreams(timeout); }

  // Sends a command to the processes of a run, wherever in the cluster they are connected. Errors: Control.ControlRun.
  absl::StatusOr<v1::ControlRunResponse> AskRun(const v1::ControlRunRequest& request, const std::string& asked_by,
                                                const std::function<bool()>& cancelled);

  Peers* peers() const { return peers_.get(); }  // null: this server is alone
  // For a page that asks the same questions.
  QueryContext query() const;
  const AnalysisContext& analysis() const { return analysis_->context(); }

 private:
  Store* const store_;
  Sessions* const sessions_;
  JobQueue* const job_queue_;
  Metrics* const metrics_;
  Activity* const activity_;
  Throttle throttle_;
  absl::Time throttled_ = absl::InfinitePast();
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<Placement> placement_;  // with peers
  std::unique_ptr<RunControl> run_control_;
  std::unique_ptr<AgentQueues> agent_queues_;  // null: there is no metrics port
  std::unique_ptr<IngestService> ingest_;
  std::unique_ptr<QueryService> query_;
  std::unique_ptr<AnalysisService> analysis_;
  std::unique_ptr<ReportService> report_;
  std::unique_ptr<GradientsService> gradients_;
  std::unique_ptr<CommunicationsService> communications_;
  std::unique_ptr<CheckpointsService> checkpoints_;
  std::unique_ptr<EnvironmentsService> environments_;
  std::unique_ptr<TensorsService> tensors_;
  std::unique_ptr<ShardService> shards_;  // with peers
  std::unique_ptr<ControlService> control_;
  std::unique_ptr<JobsService> jobs_;
  std::unique_ptr<MonitorService> monitor_;
};

}  // namespace msprobe::server
