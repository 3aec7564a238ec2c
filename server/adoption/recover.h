#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace msprobe::server {

struct RecoverOptions {
  // A dump_path, a directory with memory or spools of sessions, or the memory of one session.
  std::string path;
  std::string to;  // the server that gets the sessions, in the agent's notation; empty: the one each process had named
  std::string server_binary;  // started for sessions that were meant for the embedded server of a dump_path
  absl::Duration patience = absl::Seconds(30);  // a session that makes no progress for this long is kept
};

// A session that was found, and its outcome.
struct RecoveredSession {
  enum class State : uint8_t {
    kSent,
    kNothing,  // the server already had everything; the session's files are gone
    kInUse,    // the process lives, or somebody else is sending the session
    kKept,     // the session stays where it is; `why` says why
  };
  std::string session, run, rank, host, server, why;
  uint32_t process_id = 0;
  uint64_t bytes = 0, records = 0, batches = 0, payloads = 0;
  State state = State::kKept;
};

// Sends what the sessions of dead processes left (core::LeftSession), and calls `tell` for each session. Returns true
// if no session was kept. NotFound: the path does not exist. InvalidArgument: `to` is not an address.
absl::StatusOr<bool> Recover(const RecoverOptions& options, const std::function<void(const RecoveredSession&)>& tell);

// A JSON object on one line.
std::string ToJson(const RecoveredSession& session);

}  // namespace msprobe::server
