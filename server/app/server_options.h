#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/app/listen_security.h"
#include "server/maintenance/retention.h"
#include "server/monitor/notices/notice_receiver.h"
#include "server/monitor/rules/rule_kinds.h"
#include "server/monitor/step_monitors.h"
#include "server/monitor/watched_tensor.h"
#include "server/shards/peers.h"
#include "server/store/store.h"

namespace msprobe::server {

// An embedded server exits by itself when it has nothing to do, and knows the processes of this machine.
struct EmbeddedOptions {
  bool enabled = false;           // false: the other members do not matter
  std::string dump_path;          // where finished steps are written; empty: nowhere
  uint64_t dump_quota_bytes = 0;  // see DumpRoom
  mode_t export_umask = 022;      // for exported files; data_dir is for the server's user alone
  int export_threads = 2;
  std::string advertise;                           // the file that says where the server listens; empty: none
  absl::Duration idle_exit = absl::Seconds(5);     // how long the server stays without sessions and requests
  absl::Duration first_visit = absl::Seconds(30);  // how long it waits for its first session

  bool exports() const { return enabled && !dump_path.empty(); }
};

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
  size_t max_ranks = 0;             // in one run; 0: no limit
  PeersOptions cluster;             // cluster.shards empty: this server is alone
  EmbeddedOptions embedded;
  // Disk space to keep free. With less, the server takes no new records.
  uint64_t reserve_bytes = uint64_t{64} << 20;
  RetentionOptions retention;
  std::vector<WatchedTensor> watched;  // shown as msprobe_watched_value
  std::vector<StepMonitors::Make> monitors = StandardMonitors();
  rocksdb::Env* env = nullptr;  // for tests; borrowed; null: the operating system's
  // Must end the process; see StoreOptions.
  std::function<void(const absl::Status&)> on_log_lost;
  // For the whole server, about: a quarter for writes that are not in files yet, an eighth for the cache, a quarter for
  // incoming messages, and the rest for sessions, queries and the tiler.
  size_t memory_limit = size_t{1} << 30;
  v1::RuleSet rules = DefaultRules();  // of runs that have none of their own
  NoticeOptions notices;               // who hears of alarms

  size_t write_buffer_bytes() const { return memory_limit / 4; }
  size_t block_cache_bytes() const { return memory_limit / 8; }
  size_t message_bytes() const { return memory_limit / 4; }
};

}  // namespace msprobe::server
