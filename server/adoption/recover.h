#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace msprobe::server {

struct RecoverOptions {
  // A dump_path, a directory in which sessions' memory or spools lie, or one session's memory.
  std::string path;
  std::string to;             // the server to send to, as an agent names it; empty: the one each process had named
  std::string server_binary;  // started for what was for the embedded server of a dump_path
  absl::Duration patience = absl::Seconds(30);  // without progress
};

// One session that was found, and what became of it.
struct RecoveredSession {
  enum class State : uint8_t {
    kSent,
    kNothing,  // all of it was at the server; its files are gone
    kInUse,    // its process lives, or somebody else is sending it
    kKept,     // it stays; `why` says why
  };
  std::string session, run, rank, host, server, why;
  uint32_t process_id = 0;
  uint64_t bytes = 0, records = 0, batches = 0, payloads = 0;
  State state = State::kKept;
};

// Sends what sessions left whose processes are gone (core::LeftSession), and tells of each. Gives whether none was
// kept. NotFound: there is no such path. InvalidArgument: `to`.
absl::StatusOr<bool> Recover(const RecoverOptions& options, const std::function<void(const RecoveredSession&)>& tell);

// One line.
std::string ToJson(const RecoveredSession& session);

}  // namespace msprobe::server
