#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "agent/core/transport/outbox/held_payloads.h"
#include "agent/core/transport/sender_parts.h"
#include "agent/core/transport/stream/connection.h"
#include "agent/core/transport/stream/ingest_stream.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// Sends the payloads that the server wants, in the order in which it asked for them, chunk by chunk: as bytes, or, to a
// server that reads the session's memory, as places there. Such a payload is lent (HeldPayloads::Lend).
//
// Small chunks, and chunks that are places, go several in a message where the server takes that: a message costs both
// sides more than a copy of 64 KiB.
//
// Threads: one.
class PayloadUpload {
 public:
  // Both outlive this.
  PayloadUpload(const SenderParts* parts, HeldPayloads* held) : parts_(*parts), held_(held) {}

  // The server says which payloads it has stored, and which it wants.
  void Take(const v1::PayloadVerdict& verdict);
  // False: no payload can be sent now, or `write` did not take the message.
  bool SendNext(const ServerOffers& offers, WriteContent write);
  // The stream has ended. On the next one the server says again what it wants.
  void Forget();

 private:
  struct Current {
    std::string hash;
    uint64_t offset = 0;  // of what comes next
  };

  // The next payload that is wanted and held becomes the current one. False: there is none, or it has to wait.
  bool Begin();
  // The next part of the current payload. Nothing: as Begin says.
  std::optional<HeldPayloads::Part> NextPart(size_t size);
  // The part is on its way: the current payload goes on behind it, or is done.
  void Passed(const HeldPayloads::Part& part);
  // Sends `part` and those that follow it in one message.
  bool SendTogether(HeldPayloads::Part part, const ServerOffers& offers, WriteContent write);
  // The current payload cannot be sent any more.
  void DropCurrent();

  const SenderParts& parts_;
  HeldPayloads* const held_;
  std::deque<std::string> wanted_;           // hashes
  absl::flat_hash_set<std::string> queued_;  // wanted on this stream and not stored yet
  std::optional<Current> current_;
};

}  // namespace msprobe::core
