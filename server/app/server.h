#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "msprobe/v1/control.pb.h"
#include "server/access/refusal_log.h"
#include "server/access/tokens.h"
#include "server/adoption/adoptions.h"
#include "server/app/certificate_watch.h"
#include "server/app/grpc_port.h"
#include "server/app/grpc_services.h"
#include "server/app/http_ports.h"
#include "server/app/server_options.h"
#include "server/app/store_meters.h"
#include "server/ingest/session/sessions.h"
#include "server/jobs/job_queue.h"
#include "server/maintenance/retention.h"
#include "server/metrics/activity.h"
#include "server/metrics/metrics.h"
#include "server/monitor/dump_room.h"
#include "server/monitor/step_monitors.h"
#include "server/shards/shard_watch.h"
#include "server/store/store.h"
#include "server/store/tiles/tiler.h"

namespace msprobe::server {

// The whole server. Call Start, then Tick about twice a second until it returns false, then Stop.
// Threads: RequestDrain from any; the rest from one.
class Server {
 public:
  // AlreadyExists: another server has the data directory. InvalidArgument names the flag.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options);
  ~Server();

  // False: a drain was requested, or an embedded server has nothing left to do.
  bool Tick();
  // False: the data directory was removed or replaced. Then the process must end at once, without Stop.
  bool data_dir_in_place() const { return store_->database().in_place(); }
  // Not OK: the disk failed in a way that only a new start can judge. Then, too, the process must end at once.
  absl::Status broken() const { return store_->database().broken(); }
  void RequestDrain() { drain_requested_ = true; }
  // Changes the limits of retention. The other options of a running server are constant.
  void SetRetention(const RetentionOptions& limits) { retention_->SetLimits(limits); }

  // Checks what Start would refuse before it touches anything: addresses, TLS files, tokens. InvalidArgument names the
  // flag.
  static absl::Status Check(const ServerOptions& options);

  // Takes no new sessions, acknowledges what is applied, finishes exports, and makes everything durable. Idempotent.
  void Stop();

  // The addresses as bound: port 0 is replaced by the port in use.
  const std::vector<std::string>& addresses() const { return port_->addresses(); }

 private:
  explicit Server(ServerOptions options);
  // The parts of Start, in this order.
  absl::Status Secure();
  absl::Status OpenStore();
  absl::Status OpenSessions();
  absl::Status Listen();
  absl::Status Begin();

  v1::ServerInfo Info() const;
  // What is looked up for whoever reads the metrics.
  void PublishMeters();
  // The state of a session's process. If the process has left something here, it counts as alive until that is adopted.
  ProcessState StateOf(const v1::Hello& hello) const;
  bool NothingLeft();

  const ServerOptions options_;
  const absl::Time started_;
  std::atomic<bool> drain_requested_ = false;
  bool stopped_ = false;

  // In order of dependence: later parts know earlier ones.
  Metrics metrics_;
  RefusalLog refusals_;
  std::unique_ptr<CertificateWatch> certificates_;
  std::unique_ptr<Tokens> tokens_;  // null: no token is needed
  std::unique_ptr<Store> store_;
  std::unique_ptr<Tiler> tiler_;
  std::unique_ptr<JobQueue> jobs_;
  std::unique_ptr<Retention> retention_;
  std::unique_ptr<DumpRoom> dump_room_;  // null: nothing is exported
  std::unique_ptr<StoreMeters> store_meters_;
  Activity activity_;
  std::unique_ptr<StepMonitors> monitors_;
  std::unique_ptr<Adoptions> adoptions_;  // null: nothing is adopted
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<GrpcServices> services_;
  std::atomic<GrpcServices*> serving_ = nullptr;  // services_, for the monitors' threads, which begin before it
  std::unique_ptr<ShardWatch> shard_watch_;       // null: this server is alone
  std::unique_ptr<GrpcPort> port_;
  HttpPorts http_;
};

}  // namespace msprobe::server
