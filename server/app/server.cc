#include "server/app/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/app/advertisement.h"
#include "server/app/authorizer.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"
#include "server/store/disk/private_files.h"

namespace msprobe::server {
namespace {

// Of the memory limit: what is written and not yet in files.
constexpr size_t kWritingShare = 4;
// A batch of max_batch_bytes and its framing fit.
constexpr int kMaxMessageBytes = 16 << 20;
// Further ones wait at the client.
constexpr int kMaxCallsOfAConnection = 256;
constexpr absl::Duration kStreamsEnd = absl::Seconds(10);
constexpr absl::Duration kExportsEnd = absl::Seconds(60);
constexpr absl::Duration kRequestsEnd = absl::Seconds(5);
// After the last request: for answers on their way. A client that does not listen keeps its connection open for ever.
constexpr std::chrono::milliseconds kConnectionsEnd(300);

// Of a scrape in all: scrapers give up after ten seconds.
constexpr absl::Duration kScrape = absl::Seconds(30);
constexpr int kScrapes = 2;  // at once

// Of one comparison of tensors.
int AnalysisThreads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u)); }

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      started_(absl::Now()),
      activity_(started_),
      throttle_(options_.memory_limit / kWritingShare) {}

Server::~Server() { Stop(); }

absl::Status Server::Check(const ServerOptions& options) {
  auto addresses = ParseListen(options.listen);
  if (!addresses.ok()) return addresses.status();
  absl::Status status = CheckSecurity(options.security, *addresses, options.metrics_listen, options.web_listen);
  if (status.ok()) status = CheckCertificates(options.security, absl::Now());
  if (status.ok() && !options.security.tokens.empty()) status = Tokens::Load(options.security.tokens).status();
  return status;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(options)));
  const ServerOptions& given = server->options_;
  auto addresses = ParseListen(given.listen);
  if (!addresses.ok()) return addresses.status();
  server->listen_ = *std::move(addresses);
  absl::Status secure = CheckSecurity(given.security, server->listen_, given.metrics_listen, given.web_listen);
  if (secure.ok()) secure = CheckCertificates(given.security, server->started_);
  if (!secure.ok()) return secure;
  server->certificates_ = std::make_unique<CertificateWatch>(given.security, given.cluster.ca, &server->metrics_);
  server->certificates_->Tick(server->started_);
  if (!given.security.tokens.empty()) {
    auto tokens = Tokens::Load(given.security.tokens);
    if (!tokens.ok()) return tokens.status();
    server->tokens_ = *std::move(tokens);
  }

  StoreOptions store;
  store.directory = given.data_dir;
  store.durability = given.durability;
  store.reserve_bytes = given.reserve_bytes;
  store.env = given.env;
  store.on_warning = [](std::string_view text) { LogWarning("RocksDB: {}", text); };
  store.on_log_lost = given.on_log_lost;
  store.on_run_deleted = [server = server.get()](const std::string& run) {
    server->metrics_.ForgetRun(run);
    if (server->monitors_ != nullptr) server->monitors_->Forget(run);
  };
  store.write_buffer_bytes = given.memory_limit / kWritingShare;
  store.block_cache_bytes = given.memory_limit / 8;
  auto opened = Store::Open(store);
  if (!opened.ok()) return opened.status();
  server->store_ = *std::move(opened);
  if (const size_t closed = CloseToOthers(given.data_dir); closed > 0) {
    LogWarning(
        "the data directory {} could be read by other users of this machine; it is this user's alone from now on "
        "({} files and directories)",
        given.data_dir, closed);
  }
  server->tiler_ = std::make_unique<Tiler>(server->store_.get());
  server->store_meters_ = std::make_unique<StoreMeters>(&server->store_->database(), &server->metrics_);

  RemoveLeftBackups(Cat(given.data_dir, "/backups"));
  server->retention_ = std::make_unique<Retention>(server->store_.get(), &server->metrics_, given.retention);

  SessionsOptions sessions;
  if (given.embedded && !given.dump_path.empty()) {
    server->dump_room_ = std::make_unique<DumpRoom>(DumpRoom::Options{
        .dump_path = given.dump_path, .data_directory = given.data_dir, .quota_bytes = given.dump_quota_bytes});
  }
  sessions.admit = [retention = server->retention_.get(), room = server->dump_room_.get()](uint32_t run) {
    absl::Status admitted = retention->Admit(run);
    return admitted.ok() && room != nullptr ? room->Admit() : admitted;
  };
  sessions.version = given.version;
  sessions.max_open = given.max_sessions;
  sessions.max_ranks = given.max_ranks;
  // One that is started for a command has nothing to adopt.
  if (!given.embedded || !given.dump_path.empty()) {
    server->adoptions_ = std::make_unique<Adoptions>(AdoptionsOptions{.dump_path = given.dump_path});
  }
  sessions.probe = [of = server.get()](const v1::Hello& hello) { return of->StateOf(hello); };
  if (given.embedded && !given.dump_path.empty()) {
    sessions.shared_directories.push_back(Cat(given.dump_path, "/.msprobe/spool"));
  }
  if (given.embedded && !given.dump_path.empty()) {
    sessions.capabilities.push_back("export");
    server->exports_ = std::make_unique<StepExports>(server->store_.get(), &server->metrics_, server->dump_room_.get(),
                                                     given.dump_path, given.export_umask, given.export_threads);
  }
  server->monitors_ =
      std::make_unique<StepMonitors>(given.monitors, MonitorParts{.store = server->store_.get(),
                                                                  .metrics = &server->metrics_,
                                                                  .scraped = !given.metrics_listen.empty(),
                                                                  .watched = given.watched});
  std::vector<SessionObserver*> observers = {server->monitors_.get()};
  if (server->exports_ != nullptr) observers.push_back(server->exports_.get());
  server->observers_ = std::make_unique<Observers>(std::move(observers));
  server->sessions_ = std::make_unique<Sessions>(server->store_.get(), &server->metrics_, server->observers_.get(),
                                                 std::move(sessions));
  if (server->exports_ != nullptr) {
    server->exports_->Connect(server->sessions_.get());
    if (absl::Status status = server->exports_->Recover(); !status.ok()) return status;
  }
  if (absl::Status status = server->sessions_->Recover(); !status.ok()) return status;
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  if (server->peers_ != nullptr) {
    server->shard_watch_ = std::make_unique<ShardWatch>(server->peers_.get(), &server->metrics_);
    LogInfo("this server is {}, one of a cluster of {}", given.cluster.this_shard, given.cluster.shards.size());
  }
  if (server->adoptions_ != nullptr) server->adoptions_->Start(server->addresses_);
  server->tiler_->Start();
  server->retention_->Start();
  if (server->dump_room_ != nullptr) server->dump_room_->Start(server->sessions_.get());

  server->metrics_.Set(Metric::kBuildInfo, 1, {given.version});
  server->metrics_.Set(Metric::kProcessStart, absl::ToDoubleSeconds(server->started_ - absl::UnixEpoch()));
  if (!given.metrics_listen.empty()) {
    if (absl::Status status = server->ListenForScrapes(); !status.ok()) return status;
  }
  if (!given.web_listen.empty()) {
    if (absl::Status status = server->ListenForPage(); !status.ok()) return status;
    LogInfo("web page at http{}://{}/", given.security.tls_cert.empty() ? "" : "s", server->page_port_->address());
  }
  if (!given.advertise.empty()) {
    absl::Status status =
        WriteAdvertisement(given.advertise, server->addresses_.front(), server->store_->catalogue().server_id());
    if (!status.ok()) return status;
  }
  LogInfo("msprobe-server {} on {}, data in {}", given.version, absl::StrJoin(server->addresses_, ", "),
          given.data_dir);
  return server;
}

absl::Status Server::Listen() {
  IngestOptions ingest{.max_streams = 2 * options_.max_sessions,
                       .max_streams_of_a_peer = options_.max_streams_per_peer,
                       .server_of = {}};
  QueryContext context{.store = store_.get(),
                       .sessions = sessions_.get(),
                       .metrics = &metrics_,
                       .activity = &activity_,
                       .spool_directory = Cat(options_.data_dir, "/incoming")};
  run_control_ = std::make_unique<RunControl>(sessions_.get(), &store_->catalogue());
  if (!options_.cluster.shards.empty()) {
    peers_ = std::make_unique<Peers>(options_.cluster);
    placement_ = std::make_unique<Placement>(store_.get(), peers_.get());
    ingest.server_of = [this](const v1::Hello& hello, const Caller& caller) {
      return placement_->ServerOf(hello, caller.identity);
    };
    shards_ = std::make_unique<ShardService>(
        context, [runs = run_control_.get()](auto&&... asked) { return runs->Ask(asked...); });
    context.peers = peers_.get();
  }
  ingest_ = std::make_unique<IngestService>(sessions_.get(), &store_->database(), &metrics_, std::move(ingest));
  query_ = std::make_unique<QueryService>(context);
  analysis_ = std::make_unique<AnalysisService>(AnalysisContext{.store = store_.get(),
                                                                .activity = &activity_,
                                                                .metrics = &metrics_,
                                                                .paths_allowed = options_.embedded,
                                                                .threads = AnalysisThreads(),
                                                                .peers = peers_.get()});
  if (!options_.metrics_listen.empty()) agent_queues_ = std::make_unique<AgentQueues>(sessions_.get(), &metrics_);
  ingest_->OnReport([this](const std::string& session, const v1::ControlReport& report) {
    run_control_->Report(session, report);
    if (agent_queues_ != nullptr) agent_queues_->Report(session, report);
  });
  std::function<std::string(std::string_view)> bearer;
  if (tokens_ != nullptr) {
    bearer = [who = Authorizer(tokens_.get(), &metrics_, &refusals_)](std::string_view header) {
      return who.NameOf(header);
    };
  }
  control_ = std::make_unique<ControlService>([this] { return Info(); }, [this] { RequestDrain(); }, store_.get(),
                                              Cat(options_.data_dir, "/backups"), run_control_.get(), std::move(bearer),
                                              peers_.get());

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // Where it is used up, streams are read more slowly, which their senders feel.
  grpc::ResourceQuota messages("messages");
  messages.Resize(options_.memory_limit / 4);
  builder.SetResourceQuota(messages);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsOfAConnection);
  // Two servers on one port would share its connections without anybody noticing.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  std::vector<int> ports(listen_.size(), 0);
  for (size_t i = 0; i < listen_.size(); ++i) {
    const auto credentials = [&](std::shared_ptr<const SocketUser> user) {
      std::shared_ptr<grpc::ServerCredentials> made = CredentialsOf(options_.security, listen_[i]);
      if (tokens_ != nullptr || user != nullptr) {
        made->SetAuthMetadataProcessor(
            std::make_shared<Authorizer>(tokens_.get(), &metrics_, &refusals_, std::move(user)));
      }
      return made;
    };
    if (listen_[i].unix_path.empty()) {
      builder.AddListeningPort(listen_[i].address, credentials(nullptr), &ports[i]);
      continue;
    }
    auto listener = UnixListener::Bind(listen_[i].unix_path, static_cast<mode_t>(options_.security.socket_mode),
                                       builder, credentials);
    if (!listener.ok()) return listener.status();
    unix_listeners_.push_back(*std::move(listener));
  }
  builder.RegisterService(ingest_.get());
  builder.RegisterService(query_.get());
  builder.RegisterService(analysis_.get());
  builder.RegisterService(control_.get());
  if (shards_ != nullptr) builder.RegisterService(shards_.get());
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) {
    return absl::UnavailableError(
        Cat("--listen=", options_.listen, ": cannot listen there; the address is in use or not of this machine"));
  }
  for (const auto& listener : unix_listeners_) listener->Serve();
  for (size_t i = 0; i < listen_.size(); ++i) {
    const std::string& address = listen_[i].address;
    addresses_.push_back(listen_[i].unix_path.empty() ? Cat(address.substr(0, address.rfind(':')), ":", ports[i])
                                                      : address);
  }
  return absl::OkStatus();
}

absl::Status Server::ListenForPage() {
  QueryContext query{.store = store_.get(),
                     .sessions = sessions_.get(),
                     .metrics = &metrics_,
                     .activity = &activity_,
                     .spool_directory = {},
                     .peers = peers_.get()};
  AnalysisContext analysis = analysis_->context();
  analysis.paths_allowed = false;
  page_ = std::make_unique<WebService>(std::move(query), analysis, tokens_.get(), &refusals_);
  auto port = HttpServer::Start({.flag = "web_listen",
                                 .address = options_.web_listen,
                                 .tls_cert = options_.security.tls_cert,
                                 .tls_key = options_.security.tls_key,
                                 .tls_client_ca = options_.security.tls_client_ca,
                                 .on_cut = CountCut("web")},
                                [this](const HttpRequest& request) { return page_->Answer(request); });
  if (!port.ok()) return port.status();
  page_port_ = *std::move(port);
  return absl::OkStatus();
}

absl::Status Server::ListenForScrapes() {
  auto port = HttpServer::Start(
      {.flag = "metrics_listen",
       .address = options_.metrics_listen,
       .longest = kScrape,
       .workers = kScrapes,
       .on_cut = CountCut("metrics")},
      [this](const HttpRequest& request) {
        if (request.path != "/metrics")
          return HttpResponse{404, "text/plain", "the metrics are at /metrics\n", nullptr};
        return HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", "", [this](HttpStream& stream) {
                              const absl::Time began = absl::Now();
                              stream.Write(metrics_.Text());
                              metrics_.Observe(Metric::kScrapeSeconds, absl::ToDoubleSeconds(absl::Now() - began));
                            }};
      });
  if (!port.ok()) return port.status();
  metrics_port_ = *std::move(port);
  return absl::OkStatus();
}

std::function<void(std::string_view)> Server::CountCut(std::string port) {
  return [this, port = std::move(port)](std::string_view why) {
    metrics_.Add(Metric::kConnectionsCut, 1, {port, std::string(why)});
  };
}

v1::ServerInfo Server::Info() const {
  v1::ServerInfo info;
  info.set_server_id(store_->catalogue().server_id());
  info.set_version(options_.version);
  info.set_durability(options_.durability);
  info.set_embedded(options_.embedded);
  info.set_data_dir(options_.data_dir);
  info.set_started_unix_us(absl::ToUnixMicros(started_));
  info.set_open_sessions(static_cast<uint32_t>(sessions_->active()));
  info.set_storage_format(kStorageFormat);
  DescribeShards(peers_.get(), info);
  info.set_now_unix_us(absl::ToUnixMicros(absl::Now()));
  if (store_->database().free_bytes() != UINT64_MAX) info.set_disk_free_bytes(store_->database().free_bytes());
  if (absl::Status status = store_->database().Writable(); !status.ok()) {
    info.set_refusing(std::string(status.message()));
  }
  return info;
}

void Server::PublishStore() {
  const Tiler::Counters now = tiler_->counters();
  const auto add = [&](Metric metric, uint64_t value, uint64_t before, std::initializer_list<std::string> labels = {}) {
    if (value > before) metrics_.Add(metric, static_cast<double>(value - before), labels);
  };
  add(Metric::kTileSets, now.sets, published_.sets);
  add(Metric::kTiledPasses, now.passes, published_.passes);
  add(Metric::kTilingBytes, now.row_bytes, published_.row_bytes, {"rows"});
  add(Metric::kTilingBytes, now.tile_bytes, published_.tile_bytes, {"tiles"});
  add(Metric::kTilingFailures, now.failures, published_.failures);
  metrics_.Add(Metric::kTilingSeconds, absl::ToDoubleSeconds(now.busy - published_.busy));
  metrics_.Set(Metric::kStepsWaiting, static_cast<double>(now.waiting));
  metrics_.Set(Metric::kWriteBufferBytes, static_cast<double>(store_->database().write_buffer_usage()));
  metrics_.Set(Metric::kDiskFreeBytes, static_cast<double>(store_->database().free_bytes()));
  metrics_.Set(Metric::kStoreRefusing, store_->database().Writable().ok() ? 0 : 1);
  published_ = now;
  store_meters_->Publish();
  metrics_.Set(Metric::kExportsWaiting, exports_ == nullptr ? 0 : static_cast<double>(exports_->waiting()));
}

void Server::TellSpeed() {
  const absl::Time now = absl::Now();
  if (now - throttle_looked_ < absl::Seconds(1)) return;
  throttle_looked_ = now;
  ingest_->Slow(throttle_.Look(store_->database().write_buffer_usage(), ingest_->streams()));
}

bool Server::Tick() {
  store_->database().Tend();
  TellSpeed();
  sessions_->Tick();
  PublishStore();
  if (agent_queues_ != nullptr) agent_queues_->Tick(absl::Now());
  certificates_->Tick(absl::Now());
  if (drain_requested_) return false;
  return !options_.embedded || !NothingLeft();
}

ProcessState Server::StateOf(const v1::Hello& hello) const {
  const ProcessState state = options_.embedded ? ProbeProcess(hello) : ProcessState::kUnknown;
  if (state == ProcessState::kAlive || adoptions_ == nullptr) return state;
  return adoptions_->Awaits(hello.session()) ? ProcessState::kAlive : state;
}

bool Server::NothingLeft() {
  // To look is no visit: whoever started this server may still be on the way.
  if (adoptions_ != nullptr && !adoptions_->looked()) return false;
  const absl::Time now = absl::Now();
  const bool exporting = exports_ != nullptr && !exports_->idle();
  const bool adopting = adoptions_ != nullptr && !adoptions_->idle();
  if (sessions_->active() > 0 || exporting || adopting) activity_.Touch(now);
  const bool visited = activity_.ever() || sessions_->any_ever();
  const absl::Duration patience = visited ? options_.idle_exit : std::max(options_.idle_exit, options_.first_visit);
  return activity_.Idle(now) >= patience;
}

void Server::Stop() {
  if (stopped_) return;
  stopped_ = true;
  shard_watch_.reset();
  if (adoptions_ != nullptr) adoptions_->Stop();
  if (page_port_ != nullptr) page_port_->Stop();
  if (grpc_ != nullptr) {
    LogInfo("shutting down");
    if (!options_.advertise.empty()) RemoveAdvertisement(options_.advertise);
    if (auto* health = grpc_->GetHealthCheckService(); health != nullptr) health->SetServingStatus(false);
    sessions_->Drain();
    if (!ingest_->EndStreams(kStreamsEnd)) LogWarning("some streams did not end and are cut");
    if (exports_ != nullptr && !exports_->AwaitIdle(kExportsEnd)) {
      LogWarning("some exports are not done; the next server of this directory does them");
    }
    if (!activity_.AwaitQuiet(kRequestsEnd)) LogWarning("some requests did not end and are cut");
    grpc_->Shutdown(std::chrono::system_clock::now() + kConnectionsEnd);
    grpc_->Wait();
    unix_listeners_.clear();
  }
  if (tiler_ != nullptr) tiler_->Stop();
  if (retention_ != nullptr) retention_->Stop();
  if (dump_room_ != nullptr) dump_room_->Stop();
  // Sessions may still tell it of steps; it no longer listens.
  if (exports_ != nullptr) exports_->Stop();
  if (monitors_ != nullptr) monitors_->Stop();
  if (store_ != nullptr) {
    absl::Status status = store_->database().AwaitDurable(absl::Seconds(30));
    if (!status.ok()) LogError("{}", status.ToString());
  }
  if (metrics_port_ != nullptr) metrics_port_->Stop();  // a drain is watched, too
}

}  // namespace msprobe::server
