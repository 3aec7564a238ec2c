#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/core/config/server_access.h"
#include "agent/core/record.h"

namespace msprobe::core {

// The fate of new records while the memory ceiling is reached, because the server is slow or gone.
enum class LossPolicy : uint8_t {
  // Default. The oldest batches go to a file in spool_directory, up to spool_quota_bytes; after that as kStall.
  kSpool = 0,
  // The capturing thread waits, up to stall_bound for one step in one shortage; after that as kDrop until there is
  // room.
  kStall = 1,
  // The record is left out and counted in a gap marker.
  kDrop = 2,
};

struct RankLabel {
  bool is_rank = false;  // false: number is the process id
  uint32_t number = 0;
};

struct CaptureSettings {
  std::string task, level, summary_mode, framework, dump_path, config_json;
  std::vector<std::string> compiled_cells;  // full names
  bool stack_and_construct = true;
  bool high_precision = false;
};

// The destination of records, and the resources that the session may use, as a configuration says.
struct SessionConfig {
  std::string server;  // "host:port" or "unix:/path"; empty: finds or starts the embedded server of settings.dump_path
  ServerAccess access;
  LossPolicy loss_policy = LossPolicy::kSpool;
  uint64_t memory_ceiling_bytes = uint64_t{256} << 20;
  uint64_t spool_quota_bytes = uint64_t{4} << 30;
  absl::Duration stall_bound = absl::Seconds(30);
  // Allows a server on this machine to read tensors from the session's memory.
  bool shared_memory = true;
  // The directory of the session's memory, or "off"; empty: see MakeSessionMemory.
  std::string session_memory;
  // The disk space that the embedded server lets the dump take; 0: a share of the free space.
  uint64_t dump_quota_bytes = 0;
};

struct SessionOptions : SessionConfig {
  std::string run;  // not empty
  RankLabel rank;
  CaptureSettings settings;
  std::string server_binary;  // program of the embedded server; empty: see EmbeddedServer::FindBinary
  std::string framework_version, program;
  std::string program_path;     // absolute; the program need not exist there ("python -c")
  std::string spool_directory;  // empty: in dump_path/.msprobe, else in the temporary directory
  // How long a record waits for numbers of a tensor from a device before it is sent without them.
  absl::Duration reading_bound = absl::Seconds(30);
  // A caller that stalls calls this on its own thread ten times a second. True ends the stall, as the bound does. Null:
  // a stall cannot be interrupted.
  std::function<bool()> interrupted;
};

// The state of a session as shown to users and tests.
struct SessionCounters {
  uint64_t fragments_emitted = 0, fragments_dropped = 0, payloads_dropped = 0, faults = 0;
  uint64_t batches_sent = 0, received_through = 0, durable_through = 0, bytes_sent = 0, bytes_spooled = 0;
  bool connected = false;
  bool dump_full = false;  // the embedded server asks that no further steps be captured for now
};

// The connection of one capturing process to its server. Open does not wait for the server. A sender thread, which
// never needs the GIL, connects (and starts an embedded server if none is named), sends in order, sends again after an
// interruption, and frees what is durable. Everything that was emitted outlives the process (SessionMemory).
//
// Threads: any, with or without the GIL. No method throws. Emit blocks only if the loss policy says so. In a forked
// child every method does nothing, from before fork() returns there. The child cannot have a session of its own: gRPC's
// threads are missing in it, what they held stays locked, and its epoll sets are the parent's, too. A descriptor that
// the child adds wakes the parent's threads, which follow a pointer of the child's. (gRPC 1.51 prepares for a fork only
// while no thread is inside of it; ours wait there.)
class Session {
 public:
  // InvalidArgument: the server's address does not parse, or the run is empty. FailedPrecondition: a directory cannot
  // be made, or this process was forked from one that has had a session, or was opening one. A server that does not
  // answer is not an error.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const SessionOptions& options);
  virtual ~Session() = default;

  // Interning: equal content gets the same id. Callers should keep a cache of their own, because these lock and copy.
  virtual StructureId DefineStructure(const Structure& structure) = 0;
  // 0: stacks have taken their share of the ceiling (1/32, at least 1 MiB), which is a fault, told once.
  virtual StackId DefineStack(std::span<const Frame> innermost_first) = 0;
  virtual ParentId DefineParent(std::string_view full_name) = 0;

  // Memory for a tensor's bytes, below the ceiling. If there is no room, the loss policy decides whether it waits or
  // returns null; null is counted as a loss.
  virtual std::shared_ptr<Payload> AllocatePayload(size_t size) = 0;
  // The same with memory from `allocate`, for example memory that a device can copy into. If that returns null, there
  // is no room.
  using PayloadMemory = std::function<std::shared_ptr<std::byte>(size_t)>;
  virtual std::shared_ptr<Payload> AllocatePayload(size_t size, const PayloadMemory& allocate) = 0;

  virtual void Emit(const Fragment& fragment) = 0;

  // Markers. Each follows everything that the same thread emitted before; EndStep follows what all threads emitted.
  virtual void EndStep(uint32_t step) = 0;
  virtual void DiscardStep(uint32_t step) = 0;
  virtual void ExportOpenStep(uint32_t step) = 0;
  virtual void SetRank(RankLabel rank) = 0;
  virtual void SetSettings(const CaptureSettings& settings) = 0;
  // The part of a served request that pass `token` of `step` computes: its positions first to last, in the rows of the
  // batch from first_row on. counted: see Marker.TokenSpan.
  struct TokenSpan {
    std::string_view request;
    uint64_t first_position = 0, last_position = 0, first_row = 0;
    bool counted = false;
  };
  virtual void NoteTokens(uint32_t step, uint32_t token, const TokenSpan& span) = 0;
  virtual void ReportFault(uint32_t step, std::string_view where, std::string_view message) = 0;

  // A waiting thread calls this five times a second; false ends the wait. `missing` says what it waits for. Null: it
  // waits for the whole timeout.
  using GoesOn = std::function<bool(std::string_view missing)>;

  // Waits until everything emitted before is durable and, if the server exports, the ended steps are in place.
  // DeadlineExceeded says what is missing. DataLoss, told to one wait, says which steps have no files and never will,
  // because their server lost them.
  absl::Status Wait(absl::Duration timeout) { return Wait(timeout, nullptr); }
  virtual absl::Status Wait(absl::Duration timeout, const GoesOn& goes_on) = 0;

  // Sends SessionEnd, waits like Wait, and stops the sender. If goes_on returns false, it gives up sending within a
  // second, and the rest goes to the spool. Idempotent.
  absl::Status Close(bool clean, absl::Duration timeout) { return Close(clean, timeout, nullptr); }
  virtual absl::Status Close(bool clean, absl::Duration timeout, const GoesOn& goes_on) = 0;

  virtual SessionCounters counters() const = 0;
};

}  // namespace msprobe::core
