#include <grpc/grpc.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "agent/core/utf8.h"
#include "server/adoption/recover.h"
#include "server/app/cluster_options.h"
#include "server/app/health.h"
#include "server/app/server.h"
#include "server/app/service_notify.h"
#include "server/app/settings.h"
#include "server/format/cat.h"
#include "server/maintenance/store_check.h"
#include "server/metrics/log.h"
#include "server/monitor/notices/webhook.h"
#include "server/store/log/log_check.h"
#ifdef MSPROBE_CRASH_DISK
#include "server/store/disk/crash_disk.h"
#endif

ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "Addresses to serve on: host:port or unix:/path, separated by commas.");
ABSL_FLAG(std::string, data_dir, "", "Directory of everything stored; made where it is missing. Required.");
ABSL_FLAG(std::string, metrics_listen, "", "host:port of the Prometheus endpoint /metrics. Empty: none.");
ABSL_FLAG(
    std::string, web_listen, "",
    "host:port of the web page: runs, heat maps, overflow, records and trends, to read in a browser. With --tls_cert "
    "it is https, with --tokens it asks for one of the role read. Empty: none.");
ABSL_FLAG(std::string, durability, "sync",
          "What durable means: sync (survives power loss), interval (but for the last second), os (survives the "
          "server's death, not the machine's).");
ABSL_FLAG(int64_t, reserve_disk_mib, 64,
          "MiB to keep free on the disk of data_dir, 0 or more. With less, nothing new is taken until there is room; "
          "reading and deleting go on.");
ABSL_FLAG(bool, insecure, false, "Serve plain TCP, and metrics, on addresses that other machines can reach.");
ABSL_FLAG(bool, metrics_open, false,
          "Serve metrics, which have neither encryption nor tokens, on an address that other machines can reach.");
ABSL_FLAG(std::string, tls_cert, "", "PEM file with the server's certificate chain; with --tls_key, TCP is TLS.");
ABSL_FLAG(std::string, tls_key, "", "PEM file with its private key.");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM file: clients have to show a certificate signed by one of these.");
ABSL_FLAG(int, tls_reload_seconds, 60, "How often the three files are looked at again, 1 to 86400.");
ABSL_FLAG(std::string, tokens, "",
          "File of bearer tokens, a line each: ROLE[,ROLE...] NAME TOKEN; roles are write, read, control, work, admin. "
          "Empty: "
          "no token is asked for.");
ABSL_FLAG(std::string, socket_mode, "600", "Permissions of unix sockets, octal.");
ABSL_FLAG(double, retain_days, 0,
          "Remove runs whose latest session began longer ago. 0: no limit. Pinned and open runs are never removed.");
ABSL_FLAG(int64_t, retain_mib, 0, "Remove the oldest runs while all together have more MiB. 0: no limit.");
ABSL_FLAG(int64_t, retain_runs, 0, "Remove the oldest runs while there are more. 0: no limit.");
ABSL_FLAG(int64_t, run_quota_mib, 0,
          "MiB that one run may take; beyond, its agents are refused and their loss policy applies. 0: no limit.");
ABSL_FLAG(std::string, watch, "",
          "Statistics to serve as msprobe_watched_value: NAME=GLOB:STATISTIC[,...], at most 16, e.g. "
          "loss=*cross_entropy*.output.0:max. STATISTIC is max, min, mean, norm, std, rms or abs_max. Needs "
          "--metrics_listen.");
ABSL_FLAG(std::string, rules, "",
          "File of rules, as JSON, that watch the runs without rules of their own. Default: the built-in ones "
          "(docs/monitoring.md).");
ABSL_FLAG(std::string, alarm_webhook, "",
          "URLs (http or https), separated by commas, to which each alarm is posted as JSON, until it is taken.");
ABSL_FLAG(std::string, alarm_secret_file, "",
          "File with the secret by which --alarm_webhook's posts are signed (Standard Webhooks). Empty: unsigned.");
ABSL_FLAG(std::string, alertmanager, "",
          "URLs of Alertmanagers, separated by commas, that are told of each alarm as Prometheus would.");
ABSL_FLAG(std::string, alarm_ca, "",
          "PEM file with the authorities whose certificates are trusted there. Empty: the system's.");
ABSL_FLAG(std::string, config, "",
          "File of settings, a line each: the name of a flag, =, its value. The environment (MSPROBE_ and the name in "
          "capitals) goes before it, the command line before both. SIGHUP reads it again.");
ABSL_FLAG(bool, check_config, false, "Say every setting and where it comes from, or what is wrong, and end: 0 or 2.");
ABSL_FLAG(std::string, probe, "",
          "Ask the server at this plain address (host:port or unix:/path) whether it is serving, and end: 0 or 1.");
ABSL_FLAG(bool, check, false,
          "Read everything in data_dir, say what is damaged (run, rank, step or payload), and end: 0 where nothing is, "
          "else 1.");
ABSL_FLAG(std::string, recover, "",
          "Send what sessions left whose processes were killed, and end: 0 where all of it is at its server, else 1. A "
          "dump_path, a directory with sessions' memory (/dev/shm) or spools, or one session's memory. A JSON object a "
          "session on standard output.");
ABSL_FLAG(std::string, recover_to, "",
          "With --recover: send to this server, as an agent would name it, with the files of MSPROBE_SERVER_CA, _CERT, "
          "_KEY and _TOKEN_FILE. Empty: where each process would have.");
ABSL_FLAG(double, recover_seconds, 30, "With --recover: how long a session waits without progress, above 0.");
ABSL_FLAG(bool, embedded, false, "Leave when there is nothing left to do; leave quietly if data_dir is in use.");
ABSL_FLAG(std::string, dump_path, "", "With --embedded: directory into which finished steps are exported.");
ABSL_FLAG(
    int64_t, dump_quota_mib, 0,
    "With --embedded: MiB that the dump may take of its disks, with what this server keeps; capturing pauses then. "
    "0: half of what is free at the start.");
ABSL_FLAG(std::string, advertise, "", "With --embedded: file that says where this server listens.");
ABSL_FLAG(double, idle_exit_seconds, 5, "With --embedded: how long it stays without sessions and requests.");
ABSL_FLAG(int, export_threads, 2, "Steps exported side by side, 1 to 64.");
ABSL_FLAG(
    std::string, memory_limit, "1GiB",
    "About how much memory the server may use: a number with MiB or GiB, at least 256MiB. Senders wait when it is "
    "used up.");
ABSL_FLAG(int, max_sessions, 4096, "Sessions that may be open at once, 1 to 1000000; one more is refused.");
ABSL_FLAG(int, max_streams_per_peer, 0,
          "Streams that one peer (a token's name, else an address without its port) may have at once, up to 1000000. "
          "0: no limit.");
ABSL_FLAG(int, max_ranks, 0, "Ranks of one run that this server takes, up to 1000000. 0: no limit.");
ABSL_FLAG(std::string, shards, "",
          "Addresses of all servers of the cluster, this one among them, separated by commas, or @FILE. The same on "
          "all. Empty: $MSPROBE_SHARDS, else this server is alone.");
ABSL_FLAG(
    std::string, this_shard, "",
    "Which of --shards this server is. Empty: $MSPROBE_THIS_SHARD, else the one whose host has this host's name.");
ABSL_FLAG(std::string, shard_ca, "",
          "PEM file: the other servers have to show a certificate signed by one of these. Empty: $MSPROBE_SHARD_CA, "
          "else --tls_client_ca.");
ABSL_FLAG(std::string, shard_token_file, "",
          "File with the token that is shown to the other servers; role admin. Empty: $MSPROBE_SHARD_TOKEN_FILE.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning, error or off; or 0 to 3, as the agent counts them.");

namespace msprobe::server {
namespace {

// tests/operate/test_help.py runs each line of the examples, with existing paths and files.
constexpr char kUsage[] =
    R"(Stores what capturing processes stream, and answers questions about it.

Examples:
  msprobe-server --data_dir=/var/lib/msprobe
  msprobe-server --data_dir=/var/lib/msprobe --listen=unix:/run/msprobe/server.sock --metrics_listen=127.0.0.1:9090
  msprobe-server --data_dir=/var/lib/msprobe --listen=0.0.0.0:50051 --tls_cert=server.pem --tls_key=server.key
  msprobe-server --config=/etc/msprobe/server.conf --check_config
  msprobe-server --data_dir=/var/lib/msprobe --check
  msprobe-server --probe=127.0.0.1:50051

Every flag can be given in the environment, too (MSPROBE_DATA_DIR), or in the file of --config (data_dir = ...).)";

absl::Status BadFlag(std::string_view flag, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(Cat("--", flag, "=", value, " is not valid; ", allowed));
}

// The functions below read the flags of one subject into the options. Errors name the flag.

absl::Status ReadSecurity(SecurityOptions& security) {
  security = {.tls_cert = absl::GetFlag(FLAGS_tls_cert),
              .tls_key = absl::GetFlag(FLAGS_tls_key),
              .tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca),
              .tls_reload_seconds = absl::GetFlag(FLAGS_tls_reload_seconds),
              .tokens = absl::GetFlag(FLAGS_tokens),
              .insecure = absl::GetFlag(FLAGS_insecure),
              .metrics_open = absl::GetFlag(FLAGS_metrics_open)};
  const std::string mode = absl::GetFlag(FLAGS_socket_mode);
  const auto [end, error] = std::from_chars(mode.data(), mode.data() + mode.size(), security.socket_mode, 8);
  if (error != std::errc() || end != mode.data() + mode.size() || security.socket_mode < 0 ||
      security.socket_mode > 0777) {
    return BadFlag("socket_mode", mode, "it is an octal number from 0 to 777, for example 660");
  }
  if (security.tls_reload_seconds < 1 || security.tls_reload_seconds > 86400) {
    return BadFlag("tls_reload_seconds", Cat(security.tls_reload_seconds), "allowed are 1 to 86400");
  }
  return absl::OkStatus();
}

absl::Status ReadEmbedded(EmbeddedOptions& embedded) {
  embedded.enabled = absl::GetFlag(FLAGS_embedded);
  embedded.dump_path = absl::GetFlag(FLAGS_dump_path);
  embedded.advertise = absl::GetFlag(FLAGS_advertise);
  embedded.idle_exit = absl::Seconds(absl::GetFlag(FLAGS_idle_exit_seconds));
  embedded.export_threads = absl::GetFlag(FLAGS_export_threads);
  const int64_t quota = absl::GetFlag(FLAGS_dump_quota_mib);
  if (quota < 0) return BadFlag("dump_quota_mib", Cat(quota), "it must be 0 or more");
  embedded.dump_quota_bytes = static_cast<uint64_t>(quota) << 20;
  if (embedded.export_threads < 1 || embedded.export_threads > 64) {
    return BadFlag("export_threads", Cat(embedded.export_threads), "allowed are 1 to 64");
  }
  if (!(embedded.idle_exit >= absl::ZeroDuration())) {
    return BadFlag("idle_exit_seconds", Cat(absl::GetFlag(FLAGS_idle_exit_seconds)), "it must be 0 or more");
  }
  for (const auto& [flag, value] : {std::pair("dump_path", embedded.dump_path), {"advertise", embedded.advertise}}) {
    if (!embedded.enabled && !value.empty()) return BadFlag(flag, value, "it is for --embedded only");
  }
  return absl::OkStatus();
}

absl::Status ReadDurability(v1::Durability& durability) {
  const std::string name = absl::GetFlag(FLAGS_durability);
  if (name == "sync") {
    durability = v1::DURABILITY_SYNC;
  } else if (name == "interval") {
    durability = v1::DURABILITY_INTERVAL;
  } else if (name == "os") {
    durability = v1::DURABILITY_OS;
  } else {
    return BadFlag("durability", name, "allowed are sync, interval and os");
  }
  return absl::OkStatus();
}

absl::Status ReadMemoryLimit(size_t& limit) {
  const std::string memory = absl::GetFlag(FLAGS_memory_limit);
  uint64_t mebibytes = 0;
  std::string_view number = memory;
  const bool gibibytes = memory.ends_with("GiB");
  if (gibibytes || memory.ends_with("MiB")) number.remove_suffix(3);
  if (number.size() == memory.size() || !absl::SimpleAtoi(AbslView(number), &mebibytes) || mebibytes > (1u << 24) ||
      (gibibytes ? mebibytes * 1024 : mebibytes) < 256) {
    return BadFlag("memory_limit", memory, "allowed are numbers with MiB or GiB from 256MiB on, e.g. 1GiB");
  }
  limit = (gibibytes ? mebibytes * 1024 : mebibytes) << 20;
  return absl::OkStatus();
}

absl::Status ReadLimits(ServerOptions& options) {
  const int sessions = absl::GetFlag(FLAGS_max_sessions);
  if (sessions < 1 || sessions > 1000000) return BadFlag("max_sessions", Cat(sessions), "allowed are 1 to 1000000");
  options.max_sessions = static_cast<size_t>(sessions);
  for (const auto& [flag, value, out] :
       {std::tuple("max_streams_per_peer", absl::GetFlag(FLAGS_max_streams_per_peer), &options.max_streams_per_peer),
        {"max_ranks", absl::GetFlag(FLAGS_max_ranks), &options.max_ranks}}) {
    if (value < 0 || value > 1000000) return BadFlag(flag, Cat(value), "allowed are 0 to 1000000");
    *out = static_cast<size_t>(value);
  }
  const int64_t reserve = absl::GetFlag(FLAGS_reserve_disk_mib);
  if (reserve < 0 || reserve > (int64_t{1} << 30))
    return BadFlag("reserve_disk_mib", Cat(reserve), "it must be 0 or more");
  options.reserve_bytes = static_cast<uint64_t>(reserve) << 20;
  return ReadMemoryLimit(options.memory_limit);
}

absl::Status ReadCluster(ServerOptions& options) {
  ClusterFlags cluster{.shards = absl::GetFlag(FLAGS_shards),
                       .this_shard = absl::GetFlag(FLAGS_this_shard),
                       .shard_ca = absl::GetFlag(FLAGS_shard_ca),
                       .shard_token_file = absl::GetFlag(FLAGS_shard_token_file)};
  // The environment of a traced program is not meant for the embedded server that it starts.
  if (!options.embedded.enabled) AddEnvironment(cluster);
  char host_name[256] = {};
  gethostname(host_name, sizeof(host_name) - 1);
  auto made = ClusterOf(cluster, options.security, options.embedded.enabled, host_name);
  if (!made.ok()) return made.status();
  options.cluster = *std::move(made);
  return absl::OkStatus();
}

absl::Status ReadRetention(RetentionOptions& retention) {
  const double days = absl::GetFlag(FLAGS_retain_days);
  if (!(days >= 0)) return BadFlag("retain_days", Cat(days), "it must be 0 or more");
  if (days > 0) retention.age = absl::Hours(24) * days;
  for (const auto& [flag, value] : {std::pair("retain_mib", absl::GetFlag(FLAGS_retain_mib)),
                                    std::pair("retain_runs", absl::GetFlag(FLAGS_retain_runs)),
                                    std::pair("run_quota_mib", absl::GetFlag(FLAGS_run_quota_mib))}) {
    if (value < 0 || value > (int64_t{1} << 31)) return BadFlag(flag, Cat(value), "allowed are 0 to 2147483648");
  }
  retention.bytes = static_cast<uint64_t>(absl::GetFlag(FLAGS_retain_mib)) << 20;
  retention.runs = static_cast<uint32_t>(absl::GetFlag(FLAGS_retain_runs));
  retention.run_quota = static_cast<uint64_t>(absl::GetFlag(FLAGS_run_quota_mib)) << 20;
  return absl::OkStatus();
}

absl::Status ReadWatched(ServerOptions& options) {
  auto watched = ParseWatched(absl::GetFlag(FLAGS_watch));
  if (!watched.ok()) return watched.status();
  options.watched = *std::move(watched);
  if (!options.watched.empty() && options.metrics_listen.empty()) {
    return BadFlag("watch", absl::GetFlag(FLAGS_watch), "it needs --metrics_listen, where its values are served");
  }
  return absl::OkStatus();
}

absl::Status ReadRules(ServerOptions& options) {
  const std::string path = absl::GetFlag(FLAGS_rules);
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path);
  if (!file) return BadFlag("rules", path, Cat("it cannot be read: ", std::strerror(errno)));
  std::ostringstream content;
  content << file.rdbuf();
  auto rules = ParseRules(content.str());
  if (!rules.ok()) return BadFlag("rules", path, std::string(rules.status().message()));
  options.rules = *std::move(rules);
  return absl::OkStatus();
}

absl::Status ReadUrls(std::string_view flag, const std::string& value, std::vector<HttpUrl>& urls) {
  for (const absl::string_view each : absl::StrSplit(value, ',', absl::SkipEmpty())) {
    auto url = HttpUrl::Parse(StdView(each));
    if (!url.ok()) return BadFlag(flag, StdView(each), std::string(url.status().message()));
    if (std::find(urls.begin(), urls.end(), *url) != urls.end())
      return BadFlag(flag, value, "a URL stands there twice");
    urls.push_back(*std::move(url));
  }
  return absl::OkStatus();
}

absl::Status ReadNotices(NoticeOptions& notices) {
  absl::Status status = ReadUrls("alarm_webhook", absl::GetFlag(FLAGS_alarm_webhook), notices.webhooks);
  if (status.ok()) status = ReadUrls("alertmanager", absl::GetFlag(FLAGS_alertmanager), notices.alertmanagers);
  if (!status.ok()) return status;
  const auto read = [](std::string_view flag, const std::string& path) -> absl::StatusOr<std::string> {
    if (path.empty()) return std::string();
    std::ifstream file(path);
    std::ostringstream content;
    content << file.rdbuf();
    if (!file || content.str().empty()) return BadFlag(flag, path, "it is empty or cannot be read");
    return content.str();
  };
  const std::string secret_file = absl::GetFlag(FLAGS_alarm_secret_file);
  auto secret = read("alarm_secret_file", secret_file);
  if (!secret.ok()) return secret.status();
  if (!secret->empty()) {
    auto key = WebhookSecret(*secret);
    if (!key.ok()) return BadFlag("alarm_secret_file", secret_file, std::string(key.status().message()));
    notices.secret = *std::move(key);
  }
  notices.ca = absl::GetFlag(FLAGS_alarm_ca);
  return read("alarm_ca", notices.ca).status();
}

absl::StatusOr<ServerOptions> OptionsOfFlags() {
  ServerOptions options;
  options.version = MSPROBE_VERSION;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.web_listen = absl::GetFlag(FLAGS_web_listen);
  absl::Status status = ReadSecurity(options.security);
  if (status.ok()) status = ReadEmbedded(options.embedded);
  if (status.ok()) status = ReadDurability(options.durability);
  if (status.ok()) status = ReadLimits(options);
  if (status.ok()) status = ReadCluster(options);
  if (status.ok()) status = ReadRetention(options.retention);
  if (status.ok()) status = ReadWatched(options);
  if (status.ok()) status = ReadRules(options);
  if (status.ok()) status = ReadNotices(options.notices);
  if (!status.ok()) return status;
  if (options.data_dir.empty()) return BadFlag("data_dir", "", "it is required: the directory of everything stored");
  return options;
}

// The name of the level. An agent's number will do, since both read MSPROBE_LOG_LEVEL.
absl::StatusOr<std::string> LogLevel() {
  const std::string given = absl::GetFlag(FLAGS_log_level);
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (given == kNames[i] || (kNames[i] != "off" && given == Cat(i))) return std::string(kNames[i]);
  }
  return BadFlag("log_level", given, "allowed are debug, info, warning, error and off");
}

int Check(const ServerOptions& server) {
  // Check the logs first: opening a store replays its log up to the damage, and removes it.
  const absl::StatusOr<std::vector<std::string>> logs = CheckLogs(server.data_dir);
  if (logs.ok() && !logs->empty()) {
    for (const std::string& line : *logs) std::printf("%s\n", core::Visible(line).c_str());
    std::printf("%s\n",
                Cat("nothing was changed and nothing else was looked at; agents that still hold what is missing "
                    "send it again; copy ",
                    server.data_dir, " before a start if the rest matters")
                    .c_str());
    return 1;
  }
  StoreOptions options;
  options.directory = server.data_dir;
  auto store = Store::Open(options);
  absl::StatusOr<CheckReport> report = store.ok() ? CheckStore(**store) : store.status();
  if (!report.ok()) {
    std::fprintf(stderr, "msprobe-server: %s\n", std::string(report.status().message()).c_str());
    return 1;
  }
  for (const Damage& damage : report->damages) {
    std::printf("%s: %s\n", core::Visible(damage.where).c_str(), core::Visible(damage.what).c_str());
  }
  std::printf("%s\n", Cat(report->runs, " runs, ", report->steps, " steps, ", report->records, " records, ",
                          report->payloads, " payloads; damaged: ", report->damages.size())
                          .c_str());
  return report->damages.empty() ? 0 : 1;
}

// Bytes that were not synced may be lost, but everything acknowledged is on the disk.
[[noreturn]] void EndForDisk(const absl::Status& status) {
  LogError("the disk of the data directory failed, this server ends: {}", status.ToString());
  _exit(1);
}

int RecoverSessions() {
  RecoverOptions options;
  options.path = absl::GetFlag(FLAGS_recover);
  options.to = absl::GetFlag(FLAGS_recover_to);
  options.patience = absl::Seconds(absl::GetFlag(FLAGS_recover_seconds));
  absl::StatusOr<bool> all =
      BadFlag("recover_seconds", Cat(absl::GetFlag(FLAGS_recover_seconds)), "it must be above 0");
  if (options.patience > absl::ZeroDuration()) {
    std::error_code error;
    options.server_binary = std::filesystem::read_symlink("/proc/self/exe", error).string();
    all = Recover(options, [](const RecoveredSession& session) {
      std::printf("%s\n", ToJson(session).c_str());
      std::fflush(stdout);
    });
  }
  if (all.ok()) return *all ? 0 : 1;
  std::fprintf(stderr, "msprobe-server: %s\n", std::string(all.status().message()).c_str());
  return 2;
}

int Probe(const std::string& address) {
  const absl::Status status = AskHealth(address, absl::Seconds(2));
  if (!status.ok()) std::fprintf(stderr, "msprobe-server: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

void Reload(Settings& settings, Server& server) {
  NotifyService("RELOADING=1");
  auto need_restart = settings.Reload();
  absl::StatusOr<ServerOptions> options = OptionsOfFlags();
  absl::Status status = need_restart.ok() ? options.status() : need_restart.status();
  const absl::StatusOr<std::string> level = LogLevel();
  if (status.ok()) status = level.status();
  if (status.ok()) {
    server.SetRetention(options->retention);
    SetLogLevel(*level);
    LogInfo("settings read again");
    for (const std::string& name : *need_restart) LogWarning("{} has changed, which takes effect at a restart", name);
  } else {
    LogError("settings stay as they were: {}", std::string(status.message()));
  }
  NotifyService("READY=1");
}

int Main(Settings& settings) {
  if (!absl::GetFlag(FLAGS_probe).empty()) return Probe(absl::GetFlag(FLAGS_probe));
  if (!absl::GetFlag(FLAGS_recover).empty()) {
    StartLog("warning");
    return RecoverSessions();
  }
  // The environment of a traced program is not meant for the embedded server that it starts.
  absl::Status loaded;
  if (!absl::GetFlag(FLAGS_embedded)) loaded = settings.Load(absl::GetFlag(FLAGS_config));
  absl::StatusOr<ServerOptions> options = loaded.ok() ? OptionsOfFlags() : loaded;
  const absl::StatusOr<std::string> level = LogLevel();
  absl::Status status = level.status();
  if (!options.ok()) status = options.status();
  if (status.ok() && absl::GetFlag(FLAGS_check_config)) {
    status = Server::Check(*options);
    if (status.ok()) {
      std::fputs(settings.Describe().c_str(), stdout);
      return 0;
    }
  }
  if (!status.ok()) {
    std::fprintf(stderr, "msprobe-server: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  StartLog(*level);
  // Files are for this user alone, except for exports.
  options->embedded.export_umask = umask(077);
#ifdef MSPROBE_CRASH_DISK
  const char* seed = std::getenv("MSPROBE_CRASH_SEED");
  CrashDisk disk(options->data_dir, seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10));
  options->env = disk.env();
  const char* syncs = std::getenv("MSPROBE_CRASH_SYNCS");
  if (syncs != nullptr) disk.FailSyncsAfter(std::strtoull(syncs, nullptr, 10));
#endif

  if (absl::GetFlag(FLAGS_check)) return Check(*options);

  // Before any thread is started, so that the loop below gets all signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file at the limit of `ulimit -f` is an error of writing, as a full disk is

  // There is no grpc_shutdown: in gRPC 1.51 the last one can wait 10 s for a poller that has nothing left to poll.
  grpc_init();
  options->on_log_lost = EndForDisk;
  const bool embedded = options->embedded.enabled;
  auto server = Server::Start(*std::move(options));
  if (!server.ok()) {
    // Each rank of a job starts an embedded server; only the first gets the lock.
    if (embedded && absl::IsAlreadyExists(server.status())) return 0;
    std::fprintf(stderr, "msprobe-server: %s\n", std::string(server.status().message()).c_str());
    return absl::IsInvalidArgument(server.status()) ? 2 : 1;
  }
  NotifyService("READY=1");
  const timespec period{0, 500'000'000};
  while ((*server)->Tick()) {
    if (!(*server)->data_dir_in_place()) {
      LogError("the data directory was removed or replaced while it was in use; this server ends");
      _exit(1);
    }
    if (absl::Status status = (*server)->broken(); !status.ok()) EndForDisk(status);
    const int signal = sigtimedwait(&signals, nullptr, &period);
    // Without a file SIGHUP has its usual meaning: the terminal is gone.
    const bool reload = signal == SIGHUP && !absl::GetFlag(FLAGS_config).empty();
    if (reload) Reload(settings, **server);
    if (signal > 0 && !reload) break;
  }
  NotifyService("STOPPING=1");
  (*server)->Stop();
  return 0;
}

}  // namespace
}  // namespace msprobe::server

int main(int argc, char** argv) {
  // Debian builds Abseil for debugging: each lock of an absl::Mutex, also in gRPC, takes one lock for the whole process
  // to search for cycles of locks. A thread that loses its processor while it has that lock keeps all threads waiting.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  absl::SetProgramUsageMessage(msprobe::server::kUsage);
  absl::FlagsUsageConfig usage;
  usage.version_string = [] { return std::string("msprobe-server " MSPROBE_VERSION "\n"); };
  usage.contains_help_flags = [](absl::string_view file) { return absl::EndsWith(file, "server/app/main.cc"); };
  usage.contains_helpshort_flags = usage.contains_help_flags;
  absl::SetFlagsUsageConfig(usage);
  msprobe::server::Settings settings(std::vector<std::string>(argv, argv + argc));
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::fprintf(stderr, "msprobe-server: unexpected argument \"%s\"; flags begin with --\n", rest[1]);
    return 2;
  }
  return msprobe::server::Main(settings);
}
