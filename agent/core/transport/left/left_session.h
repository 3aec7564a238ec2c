#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/core/log.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/transport/outbox/spool.h"
#include "agent/core/transport/stream/connector.h"

namespace msprobe::core {

// The memory and the spool that a session left when its process was gone. While this object lives, nobody else
// can take it over.
//
// Threads: one.
class LeftSession {
 public:
  // The sessions whose memory or spool lies in `directory`, which is a spool's or SharedFile::kDirectory. Their
  // processes may be alive. A name is the session's id in 32 hexadecimal digits.
  static std::vector<std::string> Names(const std::string& directory);
  // Whether Names gives `name`.
  static bool IsThere(const std::string& directory, const std::string& name);
  // The process that the session belongs to. Takes nothing over. Errors as TakeOver.
  static absl::StatusOr<SessionOrigin> Origin(const std::string& directory, const std::string& name);

  // Unavailable: its process is alive, or somebody else has taken it over. NotFound: nothing is there any more.
  // DataLoss, PermissionDenied: it cannot be used, and stays as it is; the message says why.
  static absl::StatusOr<std::unique_ptr<LeftSession>> TakeOver(const std::string& directory, const std::string& name);
  ~LeftSession();

  const SessionOrigin& origin() const { return origin_; }
  // The one of several servers that had welcomed the session; empty if none had.
  const std::string& server() const { return server_; }
  // About how many bytes there are to send.
  uint64_t bytes() const { return bytes_; }

  struct Sent {
    uint64_t records = 0;  // fragments that had not been packed yet
    uint64_t batches = 0, payloads = 0;
  };
  // Sends it as its process would have done, under the session's id, so that the server takes what it lacks and nothing
  // twice. Deletes the session's files when all is durable and, where the server exports, its steps are exported.
  // Unavailable: nothing moved for `patience`, or `go_on`, which is asked about ten times a second, said no; then it
  // stays for the next process.
  using GoOn = std::function<bool(bool connected)>;
  absl::StatusOr<Sent> Send(Route route, absl::Duration patience, const GoOn& go_on, const Log* log);

 private:
  LeftSession() = default;

  SessionOrigin origin_;
  std::string server_;
  uint64_t bytes_ = 0;
  std::optional<SessionMemory::Left> memory_;  // absent: there was none, and likewise the spool
  std::optional<Spool::Left> spool_;
};

}  // namespace msprobe::core
