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
#include "agent/core/transport/left/left_session.h"
#include "agent/core/transport/stream/connector.h"

namespace msprobe::core {

// Sends, on a thread of its own, what earlier sessions with the same spool directory left (LeftSession). Sessions of
// living processes are left alone; a session that cannot be sent now is tried again.
//
// Threads: Start, Await and Stop from one.
class LeftSessions {
 public:
  // The route for a session whose origin does not name one, because an earlier version wrote it.
  using MakeRoute = std::function<Route()>;

  // `log` outlives this. `server_binary` as in EmbeddedServer::Prepare.
  LeftSessions(std::string directory, std::string server_binary, MakeRoute own_route, const Log* log);
  ~LeftSessions() { Stop(); }

  // Starts the thread if a session other than `own` (a name as in LeftSession) left something.
  void Start(const std::string& own);
  // Waits until everything is sent or no server can be reached. False: neither came within `timeout`.
  bool Await(absl::Duration timeout);
  // Leaves the rest. Idempotent.
  void Stop();

 private:
  void Run(const std::string& own);
  // Sends one session. True: it has to be tried again.
  bool Try(const std::string& name, bool first);
  absl::StatusOr<Route> RouteOfSession(const LeftSession& left) const;

  const std::string directory_;
  const std::string server_binary_;
  const MakeRoute own_route_;
  const Log* const log_;
  std::thread thread_;
  absl::Time connected_by_ = absl::InfiniteFuture();  // Await ends where no server is connected then
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{false};
  std::atomic<bool> connected_{false};
  const Log quiet_{[](Log::Severity, std::string_view) {}};
};

}  // namespace msprobe::core
