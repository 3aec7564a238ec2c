#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// Asks each connected process how many bytes its agent still holds, and shows the answers as msprobe_agent_queue_bytes.
//
// 1. A process is asked when it is first seen and every kPeriod after that. The agent's sender thread answers, not the
//    program.
// 2. Agents without the capability "control" are not asked and have no series.
// 3. When a process is no longer connected, its series is removed, because its bytes are no longer known.
// 4. The number of series is bounded in server/metrics/catalogue.cc.
// Threads: any. Borrowed objects outlive it.
class AgentQueues {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);

  AgentQueues(const Sessions* sessions, Metrics* metrics) : sessions_(sessions), metrics_(metrics) {}

  // May be called often; works once a second.
  void Tick(absl::Time now);
  // Takes a process's report, whoever asked for it.
  void Report(const std::string& session, const v1::ControlReport& report);

 private:
  using RankOfRun = std::pair<std::string, std::string>;
  struct Asked {
    RankOfRun rank;
    absl::Time last;
    bool shown = false;
  };

  const Sessions* const sessions_;
  Metrics* const metrics_;
  absl::Mutex mu_;
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::map<std::string, Asked> asked_ ABSL_GUARDED_BY(mu_);  // by session
};

}  // namespace msprobe::server
