#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/ingest/sessions.h"
#include "server/metrics/metrics.h"

namespace msprobe::server {

// How much lies with the agents: asks each connected process how it stands, and shows what it says it still holds as
// msprobe_agent_queue_bytes.
//
// 1. A process is asked when it is first seen and every kPeriod after; the sender of its agent answers, not the
// program.
// 2. Agents without the capability "control" are not asked and have no series.
// 3. A series goes when its process is no longer connected: what it holds is then not known.
// 4. The metric's own bound on pairs of run and rank holds (server/metrics/catalogue.cc).
// Threads: any. Borrowed objects outlive it.
class AgentQueues {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);

  AgentQueues(const Sessions* sessions, Metrics* metrics) : sessions_(sessions), metrics_(metrics) {}

  // Often, as it likes; does its work once a second.
  void Tick(absl::Time now);
  // A process says how it stands, asked by whomever.
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
