#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/listen_address.h"
#include "server/access/tokens.h"
#include "server/adoption/adoptions.h"
#include "server/app/certificate_watch.h"
#include "server/app/listen_security.h"
#include "server/app/store_meters.h"
#include "server/app/unix_listener.h"
#include "server/control/agent_queues.h"
#include "server/control/control_service.h"
#include "server/ingest/ingest_service.h"
#include "server/ingest/observers.h"
#include "server/ingest/sessions.h"
#include "server/ingest/throttle.h"
#include "server/maintenance/retention.h"
#include "server/metrics/metrics.h"
#include "server/monitor/dump_room.h"
#include "server/monitor/step_exports.h"
#include "server/monitor/step_monitors.h"
#include "server/query/analysis_service.h"
#include "server/query/query_service.h"
#include "server/query/shard_service.h"
#include "server/shards/peers.h"
#include "server/shards/placement.h"
#include "server/shards/shard_watch.h"
#include "server/store/store.h"
#include "server/store/tiles/tiler.h"
#include "server/web/http_server.h"
#include "server/web/web_service.h"

namespace msprobe::server {

struct ServerOptions {
  std::string version;
  std::string listen = "127.0.0.1:50051";
  std::string data_dir;
  std::string metrics_listen;  // empty: no metrics port
  std::string web_listen;      // empty: no web page
  v1::Durability durability = v1::DURABILITY_SYNC;
  SecurityOptions security;
  size_t max_sessions = 4096;
  size_t max_streams_per_peer = 0;  // 0: no limit
  size_t max_ranks = 0;             // of a run; 0: no limit
  PeersOptions cluster;             // cluster.shards empty: this server is alone
  // Leaves by itself when it has nothing to do; knows the processes of this machine.
  bool embedded = false;
  std::string dump_path;          // embedded: where finished steps are written; empty: nowhere
  uint64_t dump_quota_bytes = 0;  // embedded: see DumpRoom
  mode_t export_umask = 022;      // for what is written there; what is in data_dir is for nobody else
  std::string advertise;          // embedded: the file that says where it listens; empty: none
  absl::Duration idle_exit = absl::Seconds(5);
  absl::Duration first_visit = absl::Seconds(30);  // how long an embedded server waits for its first session
  int export_threads = 2;
  // Kept free on the disk of data_dir: below it nothing new is taken.
  uint64_t reserve_bytes = uint64_t{64} << 20;
  RetentionOptions retention;
  std::vector<WatchedTensor> watched;  // shown as msprobe_watched_value
  std::vector<StepMonitors::Make> monitors = StandardMonitors();
  rocksdb::Env* env = nullptr;  // borrowed; null: the operating system's. For tests
  // See StoreOptions: it must end the process.
  std::function<void(const absl::Status&)> on_log_lost;
  // Of the whole server, about: a quarter for what is not yet in files, an eighth for the cache, a quarter for messages
  // on their way in; the rest is that of sessions, queries and the tiler.
  size_t memory_limit = size_t{1} << 30;
};

// The whole server. Start, then Tick about every 200 ms until it says that the work is over, then Stop.
// Threads: RequestDrain from any; the rest from one.
class Server {
 public:
  // AlreadyExists: another server holds the data directory. InvalidArgument names the flag.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options);
  ~Server();

  // False: a drain was requested, or an embedded server has nothing left to do.
  bool Tick();
  // False: the data directory is gone or another's. Then the process must end at once, without Stop.
  bool data_dir_in_place() const { return store_->database().in_place(); }
  // Not OK: the disk failed in a way that only a new start can judge. Then, too, the process must end at once.
  absl::Status broken() const { return store_->database().broken(); }
  void RequestDrain() { drain_requested_ = true; }
  // Limits of retention as given now; the other options of a running server are constant.
  void SetRetention(const RetentionOptions& limits) { retention_->SetLimits(limits); }

  // What Start refuses before it touches anything: addresses, files of TLS, tokens. InvalidArgument names the flag.
  static absl::Status Check(const ServerOptions& options);

  // Takes no new session, acknowledges what is applied, finishes exports, makes everything durable. Idempotent.
  void Stop();

  // As bound: port 0 is replaced by the port in use.
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  explicit Server(ServerOptions options);
  absl::Status Listen();
  absl::Status ListenForPage();
  absl::Status ListenForScrapes();
  // What an HttpServer tells of connections that it cuts.
  std::function<void(std::string_view why)> CountCut(std::string port);
  v1::ServerInfo Info() const;
  // What is known of a session's process: one that left something here counts as alive until that is adopted.
  ProcessState StateOf(const v1::Hello& hello) const;
  bool NothingLeft();
  void PublishStore();
  void TellSpeed();

  const ServerOptions options_;
  const absl::Time started_;
  std::vector<ListenAddress> listen_;
  std::vector<std::string> addresses_;
  std::atomic<bool> drain_requested_ = false;
  bool stopped_ = false;

  // In order of dependence: the later know the earlier.
  Metrics metrics_;
  RefusalLog refusals_;
  std::unique_ptr<CertificateWatch> certificates_;
  std::unique_ptr<Tokens> tokens_;  // null: none are asked for
  std::unique_ptr<Store> store_;
  std::unique_ptr<Tiler> tiler_;
  std::unique_ptr<Retention> retention_;
  std::unique_ptr<DumpRoom> dump_room_;  // null: nothing is exported
  std::unique_ptr<StoreMeters> store_meters_;
  Tiler::Counters published_;
  Activity activity_;
  std::unique_ptr<StepExports> exports_;
  std::unique_ptr<StepMonitors> monitors_;
  std::unique_ptr<Observers> observers_;
  std::unique_ptr<Adoptions> adoptions_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<Peers> peers_;          // null: this server is alone
  std::unique_ptr<Placement> placement_;  // with peers
  Throttle throttle_;
  absl::Time throttle_looked_ = absl::InfinitePast();
  std::unique_ptr<IngestService> ingest_;
  std::unique_ptr<QueryService> query_;
  std::unique_ptr<AnalysisService> analysis_;
  std::unique_ptr<RunControl> run_control_;
  std::unique_ptr<AgentQueues> agent_queues_;  // null: nobody scrapes
  std::unique_ptr<ShardService> shards_;       // with peers
  std::unique_ptr<ControlService> control_;
  std::unique_ptr<ShardWatch> shard_watch_;  // with peers
  std::vector<std::unique_ptr<UnixListener>> unix_listeners_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<WebService> page_;  // null: there is no web page
  std::unique_ptr<HttpServer> page_port_;
  std::unique_ptr<HttpServer> metrics_port_;
};

}  // namespace msprobe::server
