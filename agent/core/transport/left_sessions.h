#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/core/log.h"
#include "agent/core/transport/connector.h"
#include "agent/core/transport/left_session.h"

namespace msprobe::core {

// Sends, on a thread of its own, what sessions before this one left with a spool directory (LeftSession). What belongs
// to a process that lives is left to it, and what cannot be sent now is tried again.
//
// Threads: Start, Await and Stop from one.
class LeftSessions {
 public:
  // How a session is sent whose origin does not say it: an earlier version's.
  using MakeRoute = std::function<Route()>;

  // log outlives this. `server_binary` as EmbeddedServer::Prepare.
  LeftSessions(std::string directory, std::string server_binary, MakeRoute own_route, const Log* log);
  ~LeftSessions() { Stop(); }

  // Starts the thread if there is anything of another session than `own`, a name as LeftSession's.
  void Start(const std::string& own);
  // Whether nothing is left to be sent, or no server can be reached for it; waits for that.
  bool Await(absl::Duration timeout);
  // Leaves the rest. Idempotent.
  void Stop();

 private:
  void Run(const std::string& own);
  // Whether it has to be tried again.
  bool Try(const std::string& name, bool first);
  absl::StatusOr<Route> RouteOfSession(const LeftSession& left) const;

  const std::string directory_;
  const std::string server_binary_;
  const MakeRoute own_route_;
  const Log* const log_;
  std::thread thread_;
  absl::Time connected_by_ = absl::InfiniteFuture();  // else nobody waits on
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::atomic<bool> connected_{false};
  const Log quiet_{[](Log::Severity, std::string_view) {}};
};

}  // namespace msprobe::core
