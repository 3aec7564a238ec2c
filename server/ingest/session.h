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

// The server's end of one capturing session, without its transport: a gRPC stream and an import drive it alike.
//
// Threads: Apply, AddPayload and AddWhole from one thread at a time; the rest from any.
class Session {
 public:
  virtual ~Session() = default;

  // Where to go on (durable_through), limits, and the payloads still missing: all that the session had received when
  // this object became its user, and durable. What it said to an earlier user is in it.
  virtual v1::Welcome welcome() const = 0;

  // Checks a batch whole, then applies it whole; a refused batch leaves no trace.
  // Answers which announced payloads are wanted and which are stored already. A duplicate (batch_sequence at or below
  // the watermark) answers an empty verdict. OutOfRange: a gap in the sequence. InvalidArgument: malformed, and where.
  // Aborted, also by AddPayload and AddWhole: the session has another user since, and takes nothing more from this one.
  virtual absl::StatusOr<v1::PayloadVerdict> Apply(const v1::Batch& batch) = 0;

  // One chunk of a wanted payload, with its bytes, which need not lie in the message; chunks of one payload come in
  // order of offset, `last` ends it. The verdict is empty until the payload is whole; then it stands in `stored`.
  // Chunks of a payload that is stored already are dropped. InvalidArgument: bad hash, offset or size. DataLoss: the
  // bytes do not have the announced hash; it stays missing and may be sent again from offset 0.
  virtual absl::StatusOr<v1::PayloadVerdict> AddPayload(const v1::PayloadChunk& chunk, std::string_view content) = 0;
  absl::StatusOr<v1::PayloadVerdict> AddPayload(const v1::PayloadChunk& chunk) {
    return AddPayload(chunk, chunk.content());
  }

  struct WholePayload {
    std::string_view hash;
    std::string_view content;
  };
  // The first of `payloads` that have their hash, are wanted and of which no chunk has come before, or are stored
  // already: stored with one write, and named in verdict.stored. Answers how many that is; the next is AddPayload's.
  virtual absl::StatusOr<size_t> AddWhole(std::span<const WholePayload> payloads, v1::PayloadVerdict& verdict) = 0;

  virtual uint64_t received_through() const = 0;
  virtual uint64_t durable_through() const = 0;

  // Waits until everything applied so far is durable. DeadlineExceeded after the timeout.
  virtual absl::Status AwaitDurable(absl::Duration timeout) = 0;
};

// Where sessions begin. The importer makes a Hello of its own (random session id, process_id 0, no boot_id), sends
// batches from batch_sequence 1 that end with Marker.SessionEnd{clean}, and sends the payloads that were wanted.
class SessionOpener {
 public:
  virtual ~SessionOpener() = default;

  // A new session, or the known one of the same id. FailedPrecondition: another protocol. InvalidArgument names the
  // field of the Hello. Unavailable: draining. PermissionDenied: the run is somebody else's.
  virtual absl::StatusOr<std::shared_ptr<Session>> OpenSession(const v1::Hello& hello) = 0;
};

}  // namespace msprobe::server
