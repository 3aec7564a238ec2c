#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::server {

// The server's end of one capturing session, without its transport. A gRPC stream and an import use it alike.
//
// Threads: Apply, AddPayload and AddWhole from one thread at a time; the rest from any.
class Session {
 public:
  virtual ~Session() = default;

  // Where to go on (durable_through), the limits, and which payloads are still missing. It covers all that the session
  // had received when this object became its user, which is durable by now, whatever an earlier user was told.
  virtual v1::Welcome welcome() const = 0;

  // Checks the whole batch, then applies the whole batch; a refused batch leaves no trace. Returns which of the
  // announced payloads are wanted and which are stored already. For a duplicate (batch_sequence at or below the
  // watermark) the verdict is empty. OutOfRange: a gap in the sequence. InvalidArgument says what is malformed, and
  // where. Aborted, from AddPayload and AddWhole as well: the session has a later user, and takes nothing more from
  // this one.
  virtual absl::StatusOr<v1::PayloadVerdict> Apply(const v1::Batch& batch) = 0;

  // Adds one chunk of a wanted payload. `content` is its bytes, which need not lie in the message. Chunks of one
  // payload come in order of offset, and `last` ends it. The verdict is empty until the payload is whole, and then
  // names it in `stored`. Chunks of a payload that is stored already are dropped. InvalidArgument: a bad hash, offset
  // or size. DataLoss: the bytes do not have the announced hash; the payload stays missing, and may be sent again from
  // offset 0.
  virtual absl::StatusOr<v1::PayloadVerdict> AddPayload(const v1::PayloadChunk& chunk, std::string_view content) = 0;
  absl::StatusOr<v1::PayloadVerdict> AddPayload(const v1::PayloadChunk& chunk) {
    return AddPayload(chunk, chunk.content());
  }

  struct WholePayload {
    std::string_view hash;
    std::string_view content;
  };
  // Stores the first of `payloads` with one write, up to the first that it cannot take, and names them in
  // verdict.stored. It takes payloads that have their hash, are wanted and have not begun to arrive, and it passes over
  // those that are stored already. Returns how many that was; the next one must go to AddPayload.
  virtual absl::StatusOr<size_t> AddWhole(std::span<const WholePayload> payloads, v1::PayloadVerdict& verdict) = 0;

  virtual uint64_t received_through() const = 0;
  virtual uint64_t durable_through() const = 0;

  // Waits until everything applied so far is durable. DeadlineExceeded after the timeout.
  virtual absl::Status AwaitDurable(absl::Duration timeout) = 0;
};

// Where sessions begin. The importer makes a Hello of its own (a random session id, process_id 0, no boot_id), sends
// batches from batch_sequence 1 on, the last of which holds Marker.SessionEnd{clean}, and sends the wanted payloads.
class SessionOpener {
 public:
  virtual ~SessionOpener() = default;

  // A new session, or the known one of the same id. FailedPrecondition: another protocol. InvalidArgument names the
  // field of the Hello that is wrong. Unavailable: the server is draining. PermissionDenied: the run is somebody
  // else's.
  virtual absl::StatusOr<std::shared_ptr<Session>> OpenSession(const v1::Hello& hello) = 0;
};

}  // namespace msprobe::server
