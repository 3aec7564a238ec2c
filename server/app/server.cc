#include "server/app/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/access/listen_address.h"
#include "server/app/advertisement.h"
#include "server/format/cat.h"
#include "server/maintenance/backup.h"
#include "server/metrics/log.h"
#include "server/store/disk/private_files.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kStreamsEnd = absl::Seconds(10);
constexpr absl::Duration kExportsEnd = absl::Seconds(60);
constexpr absl::Duration kRequestsEnd = absl::Seconds(5);
// After the last request, for answers on their way. A client that does not listen keeps its connection open for ever.
constexpr absl::Duration kConnectionsEnd = absl::Milliseconds(300);

absl::Status CheckAddressesAndTls(const ServerOptions& options) {
  auto addresses = ParseListen(options.listen);
  if (!addresses.ok()) return addresses.status();
  absl::Status status = CheckSecurity(options.security, *addresses, options.metrics_listen, options.web_listen);
  return status.ok() ? CheckCertificates(options.security, absl::Now()) : status;
}

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)), started_(absl::Now()), activity_(started_), http_(&options_, &metrics_) {}

Server::~Server() { Stop(); }

absl::Status Server::Check(const ServerOptions& options) {
  absl::Status status = CheckAddressesAndTls(options);
  if (status.ok() && !options.security.tokens.empty()) status = Tokens::Load(options.security.tokens).status();
  return status;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(options)));
  for (const auto part :
       {&Server::Secure, &Server::OpenStore, &Server::OpenSessions, &Server::Listen, &Server::Begin}) {
    if (absl::Status status = (server.get()->*part)(); !status.ok()) return status;
  }
  return server;
}

absl::Status Server::Secure() {
  if (absl::Status status = CheckAddressesAndTls(options_); !status.ok()) return status;
  certificates_ = std::make_unique<CertificateWatch>(options_.security, options_.cluster.ca, &metrics_);
  certificates_->Tick(started_);
  if (options_.security.tokens.empty()) return absl::OkStatus();
  auto tokens = Tokens::Load(options_.security.tokens);
  if (!tokens.ok()) return tokens.status();
  tokens_ = *std::move(tokens);
  return absl::OkStatus();
}

absl::Status Server::OpenStore() {
  StoreOptions options;
  options.directory = options_.data_dir;
  options.durability = options_.durability;
  options.reserve_bytes = options_.reserve_bytes;
  options.env = options_.env;
  options.on_warning = [](std::string_view text) { LogWarning("RocksDB: {}", text); };
  options.on_log_lost = options_.on_log_lost;
  options.on_run_deleted = [this](const std::string& run) {
    metrics_.ForgetRun(run);
    if (monitors_ != nullptr) monitors_->Forget(run);
  };
  options.write_buffer_bytes = options_.write_buffer_bytes();
  options.block_cache_bytes = options_.block_cache_bytes();
  auto store = Store::Open(options);
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  if (const size_t closed = CloseToOthers(options_.data_dir); closed > 0) {
    LogWarning(
        "the data directory {} could be read by other users of this machine; it is this user's alone from now on "
        "({} files and directories)",
        options_.data_dir, closed);
  }
  tiler_ = std::make_unique<Tiler>(store_.get());
  jobs_ = std::make_unique<JobQueue>(store_.get(), &metrics_);
  if (absl::Status status = jobs_->Load(); !status.ok()) return status;
  store_meters_ = std::make_unique<StoreMeters>(&store_->database(), tiler_.get(), &metrics_);
  RemoveLeftBackups(Cat(options_.data_dir, "/backups"));
  retention_ = std::make_unique<Retention>(store_.get(), &metrics_, options_.retention);
  return absl::OkStatus();
}

absl::Status Server::OpenSessions() {
  const EmbeddedOptions& embedded = options_.embedded;
  SessionsOptions sessions;
  sessions.version = options_.version;
  sessions.max_open = options_.max_sessions;
  sessions.max_ranks = options_.max_ranks;
  sessions.check_process = [this](const v1::Hello& hello) { return StateOf(hello); };
  DumpOutput files;
  if (embedded.exports()) {
    dump_room_ = std::make_unique<DumpRoom>(DumpRoom::Options{.dump_path = embedded.dump_path,
                                                              .data_directory = options_.data_dir,
                                                              .quota_bytes = embedded.dump_quota_bytes});
    files = {.dump_path = embedded.dump_path, .umask = embedded.export_umask, .threads = embedded.export_threads};
    sessions.shared_directories.push_back(Cat(embedded.dump_path, "/.msprobe/spool"));
    sessions.capabilities.push_back("export");
  }
  sessions.admit = [this](uint32_t run) {
    absl::Status admitted = retention_->Admit(run);
    return admitted.ok() && dump_room_ != nullptr ? dump_room_->Admit() : admitted;
  };
  // An embedded server without dump_path was started for one command, and adopts nothing.
  if (!embedded.enabled || embedded.exports()) {
    adoptions_ = std::make_unique<Adoptions>(AdoptionsOptions{.dump_path = embedded.dump_path});
  }
  AskRun ask = [this](const auto& request, const auto& asked_by, const auto& cancelled) {
    GrpcServices* const services = serving_.load();
    return services != nullptr
               ? services->AskRun(request, asked_by, cancelled)
               : absl::StatusOr<v1::ControlRunResponse>(absl::UnavailableError("this server only begins"));
  };
  monitors_ =
      std::make_unique<StepMonitors>(options_.monitors, MonitorParts{.store = store_.get(),
                                                                     .metrics = &metrics_,
                                                                     .scraped = !options_.metrics_listen.empty(),
                                                                     .watched = options_.watched,
                                                                     .files = std::move(files),
                                                                     .room = dump_room_.get(),
                                                                     .rules = options_.rules,
                                                                     .notices = options_.notices,
                                                                     .ask = std::move(ask),
                                                                     .jobs = jobs_.get()});
  sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, monitors_.get(), std::move(sessions));
  if (absl::Status status = monitors_->Begin(sessions_.get()); !status.ok()) return status;
  return sessions_->Recover();
}

absl::Status Server::Listen() {
  services_ = std::make_unique<GrpcServices>(options_, ServiceParts{.store = store_.get(),
                                                                    .sessions = sessions_.get(),
                                                                    .jobs = jobs_.get(),
                                                                    .metrics = &metrics_,
                                                                    .activity = &activity_,
                                                                    .tokens = tokens_.get(),
                                                                    .refusals = &refusals_,
                                                                    .info = [this] { return Info(); },
                                                                    .drain = [this] { RequestDrain(); }});
  serving_ = services_.get();
  auto port = GrpcPort::Start(options_, tokens_.get(), &metrics_, &refusals_, services_.get());
  if (!port.ok()) return port.status();
  port_ = *std::move(port);
  if (services_->peers() != nullptr) {
    shard_watch_ = std::make_unique<ShardWatch>(services_->peers(), &metrics_);
    LogInfo("this server is {}, one of a cluster of {}", options_.cluster.this_shard, options_.cluster.shards.size());
  }
  return absl::OkStatus();
}

absl::Status Server::Begin() {
  if (adoptions_ != nullptr) adoptions_->Start(addresses());
  tiler_->Start();
  retention_->Start();
  if (dump_room_ != nullptr) dump_room_->Start(sessions_.get());
  metrics_.Set(Metric::kBuildInfo, 1, {options_.version});
  metrics_.Set(Metric::kProcessStart, absl::ToDoubleSeconds(started_ - absl::UnixEpoch()));
  if (absl::Status status = http_.StartMetrics([this] { PublishMeters(); }); !status.ok()) return status;
  if (absl::Status status = http_.StartPage(*services_, tokens_.get(), &refusals_); !status.ok()) return status;
  if (const std::string& file = options_.embedded.advertise; !file.empty()) {
    absl::Status status = WriteAdvertisement(file, addresses().front(), store_->catalogue().server_id());
    if (!status.ok()) return status;
  }
  LogInfo("msprobe-server {} on {}, data in {}", options_.version, absl::StrJoin(addresses(), ", "), options_.data_dir);
  return absl::OkStatus();
}

v1::ServerInfo Server::Info() const {
  v1::ServerInfo info;
  info.set_server_id(store_->catalogue().server_id());
  info.set_version(options_.version);
  info.set_durability(options_.durability);
  info.set_embedded(options_.embedded.enabled);
  info.set_data_dir(options_.data_dir);
  info.set_started_unix_us(absl::ToUnixMicros(started_));
  info.set_open_sessions(static_cast<uint32_t>(sessions_->active()));
  info.set_storage_format(kStorageFormat);
  info.set_now_unix_us(absl::ToUnixMicros(absl::Now()));
  if (store_->database().free_bytes() != UINT64_MAX) info.set_disk_free_bytes(store_->database().free_bytes());
  if (absl::Status status = store_->database().Writable(); !status.ok())
    info.set_refusing(std::string(status.message()));
  return info;
}

void Server::PublishMeters() {
  store_meters_->Publish();
  metrics_.Set(Metric::kExportsWaiting, static_cast<double>(monitors_->waiting()));
}

bool Server::Tick() {
  const absl::Time now = absl::Now();
  store_->database().Tend();
  sessions_->Tick();
  jobs_->Tick();
  services_->Tick(now);
  certificates_->Tick(now);
  if (drain_requested_) return false;
  return !options_.embedded.enabled || !NothingLeft();
}

ProcessState Server::StateOf(const v1::Hello& hello) const {
  const ProcessState state = options_.embedded.enabled ? CheckProcess(hello) : ProcessState::kUnknown;
  if (state == ProcessState::kAlive || adoptions_ == nullptr) return state;
  return adoptions_->Awaits(hello.session()) ? ProcessState::kAlive : state;
}

bool Server::NothingLeft() {
  // A search for sessions to adopt does not count as a visit: the process that started this server may still be coming.
  if (adoptions_ != nullptr && !adoptions_->looked()) return false;
  const absl::Time now = absl::Now();
  const bool exporting = monitors_->waiting() > 0;
  const bool adopting = adoptions_ != nullptr && !adoptions_->idle();
  if (sessions_->active() > 0 || exporting || adopting) activity_.Touch(now);
  const bool visited = activity_.ever() || sessions_->any_ever();
  const absl::Duration idle_exit = options_.embedded.idle_exit;
  return activity_.Idle(now) >= (visited ? idle_exit : std::max(idle_exit, options_.embedded.first_visit));
}

void Server::Stop() {
  if (stopped_) return;
  stopped_ = true;
  shard_watch_.reset();
  if (adoptions_ != nullptr) adoptions_->Stop();
  http_.StopPage();
  if (port_ != nullptr) {
    LogInfo("shutting down");
    if (!options_.embedded.advertise.empty()) RemoveAdvertisement(options_.embedded.advertise);
    port_->StopServing();
    jobs_->Stop();
    sessions_->Drain();
    if (!services_->EndStreams(kStreamsEnd)) LogWarning("some streams did not end and are cut");
    if (!monitors_->AwaitDone(kExportsEnd)) {
      LogWarning("some exports are not done; the next server of this directory does them");
    }
    if (!activity_.AwaitQuiet(kRequestsEnd)) LogWarning("some requests did not end and are cut");
    port_->Shutdown(kConnectionsEnd);
  }
  if (tiler_ != nullptr) tiler_->Stop();
  if (retention_ != nullptr) retention_->Stop();
  if (dump_room_ != nullptr) dump_room_->Stop();
  // Sessions may still tell the monitors of steps; they no longer listen.
  if (monitors_ != nullptr) monitors_->Stop();
  if (store_ != nullptr) {
    absl::Status status = store_->database().AwaitDurable(absl::Seconds(30));
    if (!status.ok()) LogError("{}", status.ToString());
  }
  http_.StopMetrics();  // last, so that a drain can be watched
}

}  // namespace msprobe::server
