#pragma once

#include <cstdint>
#include <string>

#include "agent/core/transport/outbox/held_batches.h"
#include "agent/core/transport/packing/packer.h"
#include "agent/core/transport/sender_parts.h"
#include "agent/core/transport/stream/ingest_stream.h"

namespace msprobe::core {

// Sends the held batches in order, on every stream from the first one that is not durable.
//
// A server that finds a batch malformed ends the stream without saying which batch it was. From then on they go one at
// a time, each when the one before is durable, until the malformed one is the only one on its way: a gap takes its
// place.
//
// Threads: one.
class BatchUpload {
 public:
  // `parts`, `held` and `packer` outlive this. `session`: its id.
  BatchUpload(const SenderParts* parts, std::string session, HeldBatches* held, Packer* packer);

  // A stream begins, or the batches have been restored: what follows the durable batches comes next.
  void Begin();
  // The held batches have taken note of an Ack.
  void Acknowledged();
  // The stream ended because a batch was malformed.
  void Refused();
  // The server no longer has batches that it had made durable: the first held batch that belongs to a step says so,
  // with all the definitions that the server then lacks. False: there is none; batches that belong to no step need no
  // definitions.
  bool ReportServerLoss();

  // False: there is no batch to send now, or `write` did not take it.
  bool SendNext(KnownColumns known, WriteContent write);

 private:
  void ReplaceByGap(uint64_t sequence);

  const SenderParts& parts_;
  const std::string session_;
  HeldBatches* const held_;
  Packer* const packer_;
  uint64_t next_ = 1;           // the batch to send
  bool one_at_a_time_ = false;  // looking for the malformed one
};

}  // namespace msprobe::core
