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
#include "agent/core/transport/stream/ingest_stream.h"

namespace msprobe::core {

// How a session reaches its server.
struct Route {
  std::vector<std::string> targets;        // of ParseServerAddresses; none with an embedded server
  std::optional<EmbeddedServer> embedded;  // needs no access
  ServerAccess access;
  std::string settled;  // the one of several targets that has welcomed the session; empty: none yet
};

// The route that the session's own process would have taken. `settled` as in Route, `binary` as in
// EmbeddedServer::Prepare.
absl::StatusOr<Route> RouteOf(const SessionOrigin& origin, const std::string& settled, const std::string& binary);

// Decides when to try which server, and starts the embedded one where no server answers. Tells the user once that the
// server cannot be reached, and once that it can be again.
//
// The servers of a cluster are asked one after the other, until one welcomes the session or says which server it
// belongs to. From then on the session stays with that server, which alone knows how far it has come.
//
// Threads: one.
class Connector {
 public:
  using Clock = Doorbell::Clock;

  Connector(Route route, std::shared_ptr<Doorbell> bell, const Log* log);

  // Starts a stream. Null: it is not yet next_attempt(), or there is no address or no thread yet.
  std::unique_ptr<IngestStream> TryStart(Clock::time_point now);
  Clock::time_point next_attempt() const { return next_attempt_; }
  // Why the last attempt failed; empty: it did not, or there was none.
  const std::string& trouble() const { return trouble_; }
  // The address of the last stream.
  const std::string& target() const { return target_; }

  // What msprobe-client is given in a shell to reach this server: "--server HOST:PORT", or "--data_dir DIRECTORY".
  std::string client_option() const;

  // The server has welcomed the session.
  void Succeeded(const std::string& server_version);
  // The stream has ended, or could not be started.
  void Failed(Clock::time_point now, const grpc::Status& status);
  // Instead of Failed: the server said that the session belongs to the one at `address`.
  void Redirected(Clock::time_point now, const std::string& address);

 private:
  void StartServer(Clock::time_point now);
  std::unique_ptr<IngestStream> StartStream(Clock::time_point now, const ServerAccess::Opened& access);
  void BackOff(Clock::time_point now);
  void Warn(const std::string& why);

  const Route route_;
  const std::shared_ptr<Doorbell> bell_;
  const Log* const log_;

  std::string target_;   // of the last attempt
  std::string settled_;  // the server that has welcomed the session; empty: none yet
  std::string trouble_;
  std::string told_;  // where the session was redirected to; empty: nowhere
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
