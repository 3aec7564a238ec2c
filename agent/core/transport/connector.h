#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/core/config/server_access.h"
#include "agent/core/doorbell.h"
#include "agent/core/embedded/embedded_server.h"
#include "agent/core/log.h"
#include "agent/core/payload/session_origin.pb.h"
#include "agent/core/transport/ingest_stream.h"

namespace msprobe::core {

// How a session reaches its server.
struct Route {
  std::vector<std::string> targets;        // of ParseServerAddresses; none with an embedded server
  std::optional<EmbeddedServer> embedded;  // which asks for nothing
  ServerAccess access;
  std::string settled;  // of several targets the one that has welcomed the session; empty: none yet
};

// As the process of that session would have reached it: `settled` as above, `binary` as EmbeddedServer::Prepare.
absl::StatusOr<Route> RouteOf(const SessionOrigin& origin, const std::string& settled, const std::string& binary);

// Decides when to try to reach which server, and starts the embedded one where nobody answers. Says once that the
// server cannot be reached, and once that it can again.
//
// Of several servers of a cluster one after the other is asked until one welcomes the session, or says where it
// belongs. From then on it is that server's: it alone knows how far it has come. Threads: one.
class Connector {
 public:
  using Clock = Doorbell::Clock;

  Connector(Route route, std::shared_ptr<Doorbell> bell, const Log* log);

  // A stream that has just been started; null before next_attempt() and where there is no address yet.
  std::unique_ptr<IngestStream> TryStart(Clock::time_point now);
  Clock::time_point next_attempt() const { return next_attempt_; }
  // What the last attempt failed of; empty: it did not, or there was none.
  const std::string& trouble() const { return trouble_; }
  // Where the last stream was started.
  const std::string& target() const { return target_; }

  void Succeeded(const std::string& server_version);  // a handshake
  void Failed(Clock::time_point now, const grpc::Status& status);
  // Instead of Failed, where the server said that the session belongs to another one.
  void Redirected(Clock::time_point now, const std::string& address);

 private:
  void StartServer(Clock::time_point now);
  void BackOff(Clock::time_point now);
  void Warn(const std::string& why);

  const Route route_;
  const std::shared_ptr<Doorbell> bell_;
  const Log* const log_;

  std::string target_;   // of the last attempt
  std::string settled_;  // that has welcomed the session; empty: none yet
  std::string trouble_;
  std::string told_;  // where it was redirected to; empty: nowhere
  size_t next_target_ = 0;
  int redirects_ = 0;  // since the last server that welcomed or failed
  bool target_failed_ = false;
  bool warned_ = false;
  int attempts_ = 0;  // since the last success
  Clock::time_point first_attempt_;
  Clock::time_point next_attempt_ = Clock::time_point::min();
  Clock::time_point next_server_start_ = Clock::time_point::min();
  Clock::duration server_start_pause_;
};

}  // namespace msprobe::core
