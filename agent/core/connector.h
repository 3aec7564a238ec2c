#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/doorbell.h"
#include "agent/core/embedded_server.h"
#include "agent/core/ingest_stream.h"
#include "agent/core/log.h"
#include "agent/core/server_access.h"

namespace msprobe::core {

// Decides when to try to reach which server, and starts the embedded one where nobody answers. Says once that the
// server cannot be reached, and once that it can again.
//
// Of several servers of a cluster one after the other is asked until one welcomes the session, or says where it
// belongs. From then on it is that server's: it alone knows how far it has come. Threads: one.
class Connector {
 public:
  using Clock = Doorbell::Clock;

  // `targets` of ParseServerAddresses, or an embedded server, which asks for nothing.
  Connector(std::vector<std::string> targets, std::optional<EmbeddedServer> embedded, ServerAccess access,
            std::shared_ptr<Doorbell> bell, const Log* log);

  // A stream that has just been started; null before next_attempt() and where there is no address yet.
  std::unique_ptr<IngestStream> TryStart(Clock::time_point now);
  Clock::time_point next_attempt() const { return next_attempt_; }

  void Succeeded(const std::string& server_version);  // a handshake
  void Failed(Clock::time_point now, const grpc::Status& status);
  // Instead of Failed, where the server said that the session belongs to another one.
  void Redirected(Clock::time_point now, const std::string& address);

 private:
  void StartServer(Clock::time_point now);
  void BackOff(Clock::time_point now);
  void Warn(const std::string& why);

  const std::vector<std::string> configured_targets_;
  const std::optional<EmbeddedServer> embedded_;
  const ServerAccess access_;
  const std::shared_ptr<Doorbell> bell_;
  const Log* const log_;

  std::string target_;   // of the last attempt
  std::string settled_;  // that has welcomed the session; empty: none yet
  std::string told_;     // where it was redirected to; empty: nowhere
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
