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
#include "agent/core/transport/connector.h"
#include "agent/core/transport/spool.h"

namespace msprobe::core {

// What a session whose process is gone left in its memory and in its spool, taken over: nobody else can, until this
// object goes.
//
// Threads: one.
class LeftSession {
 public:
  // Names (an id in 32 hexadecimal digits) of the sessions of which memory or spool is in `directory`: that of a spool
  // or SharedFile::kDirectory. Of living processes too.
  static std::vector<std::string> Names(const std::string& directory);
  // Whether Names has it.
  static bool IsThere(const std::string& directory, const std::string& name);
  // Whose it is, without taking it over. As TakeOver.
  static absl::StatusOr<SessionOrigin> Origin(const std::string& directory, const std::string& name);

  // Unavailable: its process lives, or somebody else has taken it over. NotFound: nothing is there any more. DataLoss,
  // PermissionDenied: it cannot be used, and why; it stays as it is.
  static absl::StatusOr<std::unique_ptr<LeftSession>> TakeOver(const std::string& directory, const std::string& name);
  ~LeftSession();

  const SessionOrigin& origin() const { return origin_; }
  // Of several servers the one that had welcomed it; empty: none.
  const std::string& server() const { return server_; }
  // About, of what is to be sent.
  uint64_t bytes() const { return bytes_; }

  struct Sent {
    uint64_t records = 0;  // fragments that had not been packed yet
    uint64_t batches = 0, payloads = 0;
  };
  // Sends it as its process would have, under its id, so that the server takes what it has not and nothing twice. When
  // all is durable, and its steps exported where the server does that, its files go. Unavailable: nothing moved for
  // `patience`, or `go_on`, asked some ten times a second whether to, was false; then it stays for the next one.
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
