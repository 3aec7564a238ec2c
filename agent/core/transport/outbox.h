#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/transport/packer.h"
#include "agent/core/transport/spool.h"

namespace msprobe::core {

// Batches and payloads that the server has not yet made durable, in memory or spooled.
//
// Invariants:
// 1. Batches have consecutive sequences: freed_through() + 1 to last_sequence().
// 2. A payload is held once, however often it is announced, from its announcement until Stored.
// 3. What is in memory is charged to the budget; what is spooled is not.
// 4. A payload that is lent stays where it is, in memory, until it is stored or dropped or lending ends.
// 5. Once Append has returned, the session's memory lists the batch and what it announced first, until they are
//    durable, stored or spooled.
//
// Threads: one (the sender). The shared bytes given out may outlive the entry, on any thread.
class Outbox {
 public:
  Outbox(MemoryBudget* budget, Spool* spool, std::shared_ptr<SessionMemory> memory = SessionMemory::Private());
  ~Outbox();

  void Append(PackedBatch batch);
  // What a dead process held.
  struct Left {
    std::vector<Spool::Found> spooled = {};  // in the order of the spool
    std::vector<SessionMemory::Left::Piece> batches = {}, payloads = {};
    std::optional<uint64_t> freed_through = {};  // absent: all before the first that is there
    uint64_t cut_through = 0;                    // batches up to here there were
    uint64_t last_entry = 0;                     // of the queue, in batches
  };
  // Holds it. A batch that is missing has no bytes. Only while nothing is held. DataLoss: it cannot be true.
  absl::Status Restore(Left left);
  void Acknowledge(uint64_t durable_through);

  uint64_t freed_through() const { return freed_through_; }
  uint64_t last_sequence() const { return freed_through_ + batches_.size(); }
  bool empty() const { return batches_.empty(); }
  // The queue's entries that durable batches cover.
  uint64_t durable_entry() const { return durable_entry_; }

  // The bytes of a held batch as a serialized AgentMessage. Not OK: the spool could not give it back, or it is missing.
  struct Bytes {
    std::shared_ptr<const void> owner;
    std::string_view view;
  };
  absl::StatusOr<Bytes> BatchBytes(uint64_t sequence) const;
  // Puts other bytes in the place of a held batch's.
  void ReplaceBatch(uint64_t sequence, std::string_view bytes);
  struct BatchSummary {
    uint32_t first_step = 0;
    uint64_t fragments = 0;
  };
  BatchSummary Summary(uint64_t sequence) const;

  void Stored(const std::string& hash);
  bool Holds(const std::string& hash) const { return payloads_.contains(hash); }
  // After a reconnection: what durable batches announced and the server does not miss is stored.
  void StoredUnlessMissing(uint64_t durable_through, const std::vector<std::string>& missing);
  // Up to `size` bytes from `offset` on; what is spooled is read piece by piece, and verified with the first. NotFound:
  // not held. Otherwise as BatchBytes; the bytes stay alive as long as their owner.
  struct PayloadPart {
    std::shared_ptr<const void> owner;
    std::string_view bytes;
    bool last = false;
    std::optional<uint64_t> shared_offset;  // of the bytes in the session's SharedFile
  };
  absl::StatusOr<PayloadPart> ReadPayload(const std::string& hash, uint64_t offset, size_t size) const;
  // Whether what ReadPayload gave is still what was captured.
  bool Intact(const std::string& hash) const;
  void DropPayload(const std::string& hash) { Stored(hash); }

  // The server may read the payload's memory from now on.
  void Lend(const std::string& hash);
  // Of one payload, which is then no longer shared; of all, which are.
  void EndLending(const std::string& hash);
  void EndLending();
  bool IsLent(const std::string& hash) const;
  size_t lent_bytes() const { return lent_bytes_; }

  // Payloads held that batches up to `sequence` announced first.
  uint64_t PayloadsThrough(uint64_t sequence) const;
  uint64_t payloads() const { return payloads_.size(); }
  // The sequence of the last batch with an entry up to `entry`; what is durable counts as freed_through().
  uint64_t SequenceOfEntry(uint64_t entry) const;

  // Moves the oldest batch that is in memory, and what it announced first, to the spool. False: nothing moved, because
  // nothing is left in memory or the spool took no more.
  bool SpillOldest();
  // Moves everything, what is not a copy too, as the program that owns it ends. False: the spool took only a part, from
  // the oldest on.
  bool SpillAll();
  bool spool_full() const { return spool_full_; }
  // What lies in memory alone, that which outlives the process or that which does not.
  struct Counts {
    uint64_t batches = 0, payloads = 0;
  };
  Counts InMemory(bool outliving) const;

 private:
  struct Batch {
    std::shared_ptr<const MappedMemory> memory;  // perhaps of several
    std::string_view bytes;                      // in memory
    Listing listing;
    std::optional<Spool::Place> place;  // with null memory
    uint64_t last_entry = 0;
    BatchSummary summary;
    std::vector<std::string> announced_first;
  };
  struct HeldPayload {
    std::shared_ptr<Payload> memory;
    Listing listing;
    std::optional<Spool::Place> place;  // with null memory
    uint64_t first_announced = 0;
    bool lent = false;
    bool shareable = true;
  };

  const Batch& Get(uint64_t sequence) const { return batches_[sequence - freed_through_ - 1]; }
  // Puts the bytes into memory that outlives the process, where there is room.
  void Keep(uint64_t sequence, std::string_view bytes, Batch& batch);
  char* Reserve(size_t size, std::shared_ptr<const MappedMemory>& memory);
  void Forget(Batch& batch);
  void EndLending(HeldPayload& payload);
  bool SpillPayload(const std::string& hash, bool only_copies);

  MemoryBudget* const budget_;
  Spool* const spool_;
  const std::shared_ptr<SessionMemory> memory_;
  std::shared_ptr<const MappedMemory> block_;  // of small batches, one behind the other
  size_t block_used_ = 0;
  std::deque<Batch> batches_;
  uint64_t freed_through_ = 0;
  uint64_t spilled_through_ = 0;  // batches up to here are spooled or freed
  uint64_t durable_entry_ = 0;
  bool spool_full_ = false;
  size_t lent_bytes_ = 0;
  absl::flat_hash_map<std::string, HeldPayload> payloads_;
};

}  // namespace msprobe::core
