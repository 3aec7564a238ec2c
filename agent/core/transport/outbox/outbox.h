#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/transport/outbox/held_batches.h"
#include "agent/core/transport/outbox/held_payloads.h"
#include "agent/core/transport/outbox/spool.h"
#include "agent/core/transport/packing/packer.h"

namespace msprobe::core {

// Holds batches and payloads, in memory or in the spool, until the server has made them durable.
//
// This ties the two together: the payloads that a batch announces are held, listed and spooled before the batch is. So
// whoever finds the batch finds them.
//
// Threads: one (the sender).
class Outbox {
 public:
  // `budget` and `spool` outlive this.
  Outbox(MemoryBudget* budget, Spool* spool, std::shared_ptr<SessionMemory> memory = SessionMemory::Private());

  HeldBatches& batches() { return batches_; }
  const HeldBatches& batches() const { return batches_; }
  HeldPayloads& payloads() { return payloads_; }
  const HeldPayloads& payloads() const { return payloads_; }
  bool empty() const { return batches_.empty() && payloads_.count() == 0; }

  void Append(PackedBatch batch);

  // The batches and payloads that a process held when it died.
  struct Left {
    std::vector<Spool::Found> spooled = {};  // in the order of the spool
    std::vector<SessionMemory::Left::Piece> batches = {}, payloads = {};
    std::optional<uint64_t> freed_through = {};  // this and the next two: see HeldBatches::Left
    uint64_t cut_through = 0;
    uint64_t last_entry = 0;
  };
  // Holds them from now on. Only while nothing is held. Errors: see HeldBatches::Restore.
  absl::Status Restore(Left left);

  // Moves the oldest batch in memory, with the payloads that it announced first, to the spool. False: no batch is in
  // memory, or the spool takes no more.
  bool SpillOldest();
  // Moves everything, also the payloads that are the program's own memory, since the program ends. False: the spool
  // took only a part, the oldest first.
  bool SpillAll();

  // How much lies in memory alone: in memory that outlives the process, or in memory that does not.
  struct Counts {
    uint64_t batches = 0, payloads = 0;
  };
  Counts InMemory(bool outliving) const {
    return {.batches = batches_.InMemory(outliving), .payloads = payloads_.InMemory(outliving)};
  }

 private:
  HeldBatches batches_;
  HeldPayloads payloads_;
};

}  // namespace msprobe::core
