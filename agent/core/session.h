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
#include "agent/core/record.h"

namespace msprobe::core {

// What happens to new records when the memory ceiling is reached because the server is slow or gone.
enum class LossPolicy : uint8_t {
  // Default. Oldest batches go to a file under spool_directory, up to spool_quota_bytes; then as kStall.
  kSpool = 0,
  // The capturing thread waits, at most stall_bound in all in one step and shortage; then as kDrop until there is room.
  kStall = 1,
  // The record is counted and left out; a gap marker takes its place.
  kDrop = 2,
};

struct RankLabel {
  bool is_rank = false;  // false: number is the process id
  uint32_t number = 0;
};

struct CaptureSettings {
  std::string task, level, summary_mode, framework = "pytorch", dump_path, config_json;
  bool stack_and_construct = true;
  bool high_precision = false;
};

struct SessionOptions {
  std::string run;  // not empty
  RankLabel rank;
  CaptureSettings settings;
  std::string server;  // "host:port" or "unix:/path"; empty: find or start the embedded server of settings.dump_path
  std::string server_binary;  // for the embedded server; empty: msprobe-server beside the Python executable, then PATH
  std::string framework_version, program;
  LossPolicy loss_policy = LossPolicy::kSpool;
  size_t memory_ceiling_bytes = size_t{256} << 20;
  uint64_t spool_quota_bytes = uint64_t{4} << 30;
  // A server on this machine reads tensors from the session's memory.
  bool shared_memory = true;
  // Where the session's memory lies: a directory, or "off"; empty: as MakeSessionMemory says.
  std::string session_memory;
  // What the embedded server lets the dump take of its disk; 0: a share of what is free.
  uint64_t dump_quota_bytes = 0;
  std::string spool_directory;  // empty: under dump_path/.msprobe, else the temporary directory
  absl::Duration stall_bound = absl::Seconds(30);
  // How long one tensor's numbers may be on their way from a device before its record goes without them.
  absl::Duration reading_bound = absl::Seconds(30);
  // Asked by a caller that stalls, on its thread, ten times a second: true ends its stall, as the bound does. Null:
  // nothing interrupts one.
  std::function<bool()> interrupted;
};

// The state of a session as shown to users and tests.
struct SessionCounters {
  uint64_t fragments_emitted = 0, fragments_dropped = 0, payloads_dropped = 0, faults = 0;
  uint64_t batches_sent = 0, received_through = 0, durable_through = 0, bytes_sent = 0, bytes_spooled = 0;
  bool connected = false;
  bool dump_full = false;  // an embedded server asks that no further step be captured, for now
};

// One capturing process towards its server. Opening never waits for the server: a sender thread, which never needs the
// GIL, connects (starting an embedded server where none is named), sends in order, resends after an interruption, and
// frees what is durable. What Emit and the markers have taken outlives the process (SessionMemory).
//
// Threads: every method may be called from any thread, with or without the GIL; none throws. Emit blocks only as the
// loss policy says. After a fork the child must call Abandon and nothing else.
class Session {
 public:
  // Errors: InvalidArgument for a server address that does not parse, an empty run; FailedPrecondition when a directory
  // cannot be made. A server that is not there is not an error.
  static absl::StatusOr<std::unique_ptr<Session>> Open(SessionOptions options);
  virtual ~Session() = default;

  // Interning. Equal content gets the equal id. Callers keep their own cache in front: these take a lock and copy.
  virtual StructureId DefineStructure(const Structure& structure) = 0;
  virtual StackId DefineStack(std::span<const Frame> innermost_first) = 0;
  virtual ParentId DefineParent(std::string_view full_name) = 0;

  // Room for a tensor's bytes, under the ceiling. Waits or gives null as the loss policy says (counted, a gap).
  virtual std::shared_ptr<Payload> AllocatePayload(size_t size) = 0;
  // The same in memory that `allocate` gives (that a device can copy into, for example); null from it counts as no
  // room.
  using PayloadMemory = std::function<std::shared_ptr<std::byte>(size_t)>;
  virtual std::shared_ptr<Payload> AllocatePayload(size_t size, const PayloadMemory& allocate) = 0;

  virtual void Emit(const Fragment& fragment) = 0;

  // Markers, in order with what was emitted before (from the same thread; all threads for EndStep).
  virtual void EndStep(uint32_t step) = 0;
  virtual void DiscardStep(uint32_t step) = 0;
  virtual void ExportOpenStep(uint32_t step) = 0;
  virtual void SetRank(RankLabel rank) = 0;
  virtual void SetSettings(const CaptureSettings& settings) = 0;
  // What pass `token` of `step` holds of a request that a server serves: positions first to last, in rows first_row and
  // on of the batch. counted: as Marker.TokenSpan says.
  struct TokenSpan {
    std::string_view request;
    uint64_t first_position = 0, last_position = 0, first_row = 0;
    bool counted = false;
  };
  virtual void NoteTokens(uint32_t step, uint32_t token, const TokenSpan& span) = 0;
  virtual void ReportFault(uint32_t step, std::string_view where, std::string_view message) = 0;

  // Whoever waits asks it, on its own thread, five times a second: whether to wait on for `missing`. Null: for the
  // whole timeout.
  using GoesOn = std::function<bool(std::string_view missing)>;

  // Waits until all that was emitted before is durable and, where the server exports, the ended steps are in place.
  // DeadlineExceeded says what is missing.
  absl::Status Wait(absl::Duration timeout) { return Wait(timeout, nullptr); }
  virtual absl::Status Wait(absl::Duration timeout, const GoesOn& goes_on) = 0;

  // Sends SessionEnd, waits as Wait does, stops the sender. When goes_on has said no, what is under way is left within
  // a second, and what was not sent goes to the spool. Idempotent.
  absl::Status Close(bool clean, absl::Duration timeout) { return Close(clean, timeout, nullptr); }
  virtual absl::Status Close(bool clean, absl::Duration timeout, const GoesOn& goes_on) = 0;

  // In a forked child: leaves the parent's connection and threads alone, without running their destructors.
  virtual void Abandon() = 0;

  virtual SessionCounters counters() const = 0;
};

}  // namespace msprobe::core
