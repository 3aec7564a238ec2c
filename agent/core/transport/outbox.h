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

// Holds batches and payloads, in memory or in the spool, until the server has made them durable.
//
// Invariants:
// 1. Batches have consecutive sequences: freed_through() + 1 to last_sequence().
// 2. A payload is held once, however often it is announced, from its announcement until Stored.
// 3. What lies in memory is charged to the budget; what lies in the spool is not.
// 4. A payload that is lent stays where it is, in memory, until it is stored or dropped or lending ends.
// 5. Once Append has returned, the session's memory lists the batch and the payloads that it announced first, until
//    they are durable, stored or spooled.
//
// Threads: one (the sender). Bytes that were given out stay valid as long as their owner, on any thread.
class Outbox {
 public:
  Outbox(MemoryBudget* budget, Spool* spool, std::shared_ptr<SessionMemory> memory = SessionMemory::Private());
  ~Outbox();

  void Append(PackedBatch batch);
  // What a process held when it died.
  struct Left {
    std::vector<Spool::Found> spooled = {};  // in the order of the spool
    std::vector<SessionMemory::Left::Piece> batches = {}, payloads = {};
    std::optional<uint64_t> freed_through = {};  // absent: all batches before the first one that is there
    uint64_t cut_through = 0;                    // the last batch that was made
    uint64_t last_entry = 0;                     // the last entry of the queue that is in a batch
  };
  // Holds it from now on. Only while nothing is held. A batch that is missing has no bytes. DataLoss: what `left` says
  // contradicts itself.
  absl::Status Restore(Left left);
  void Acknowledge(uint64_t durable_through);

  uint64_t freed_through() const { return freed_through_; }
  uint64_t last_sequence() const { return freed_through_ + batches_.size(); }
  bool empty() const { return batches_.empty(); }
  // The queue's entries that durable batches cover.
  uint64_t durable_entry() const { return durable_entry_; }

  // The bytes of a held batch, a serialized AgentMessage. An error: the spool could not give them back, or the batch is
  // missing.
  struct Bytes {
    std::shared_ptr<const void> owner;
    std::string_view view;
  };
  absl::StatusOr<Bytes> BatchBytes(uint64_t sequence) const;
  // Gives a held batch other bytes.
  void ReplaceBatch(uint64_t sequence, std::string_view bytes);
  struct BatchSummary {
    uint32_t first_step = 0;
    uint64_t fragments = 0;
  };
  BatchSummary Summary(uint64_t sequence) const;

  void Stored(const std::string& hash);
  bool Holds(const std::string& hash) const { return payloads_.contains(hash); }
  // After a reconnection: the server has every payload that a durable batch announced, but the `missing` ones.
  void StoredUnlessMissing(uint64_t durable_through, const std::vector<std::string>& missing);
  // Up to `size` bytes from `offset` on. A spooled payload is read piece by piece, and verified at its first one.
  // NotFound: it is not held. Other errors as BatchBytes.
  struct PayloadPart {
    std::shared_ptr<const void> owner;
    std::string_view bytes;
    bool last = false;
    std::optional<uint64_t> shared_offset;  // of the bytes in the session's SharedFile
  };
  absl::StatusOr<PayloadPart> ReadPayload(const std::string& hash, uint64_t offset, size_t size) const;
  // Whether the bytes that ReadPayload gives are still those that were captured.
  bool Intact(const std::string& hash) const;
  void DropPayload(const std::string& hash) { Stored(hash); }

  // The server may read the payload's memory from now on.
  void Lend(const std::string& hash);
  // The server reads it no longer: this payload, which is not lent again; all payloads, which may be.
  void EndLending(const std::string& hash);
  void EndLending();
  bool IsLent(const std::string& hash) const;
  size_t lent_bytes() const { return lent_bytes_; }

  // How many payloads are held that batches up to `sequence` announced first.
  uint64_t PayloadsThrough(uint64_t sequence) const;
  uint64_t payloads() const { return payloads_.size(); }
  // The sequence of the last batch with an entry up to `entry`; freed_through() where that batch is durable.
  uint64_t SequenceOfEntry(uint64_t entry) const;

  // Moves the oldest batch in memory, with the payloads that it announced first, to the spool. False: no batch is in
  // memory, or the spool takes no more.
  bool SpillOldest();
  // Moves everything, also the payloads that are the program's own memory, since the program ends. False: the spool
  // took only a part, the oldest first.
  bool SpillAll();
  bool spool_full() const { return spool_full_; }
  // How much lies in memory alone: in memory that outlives the process, or in memory that does not.
  struct Counts {
    uint64_t batches = 0, payloads = 0;
  };
  Counts InMemory(bool outliving) const;

 private:
  struct Batch {
    std::shared_ptr<const MappedMemory> memory;  // several small batches may share it
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
  // Copies the bytes into memory that outlives the process, where that has room.
  void Keep(uint64_t sequence, std::string_view bytes, Batch& batch);
  char* Reserve(size_t size, std::shared_ptr<const MappedMemory>& memory);
  void Forget(Batch& batch);
  void EndLending(HeldPayload& payload);
  bool SpillPayload(const std::string& hash, bool only_copies);

  MemoryBudget* const budget_;
  Spool* const spool_;
  const std::shared_ptr<SessionMemory> memory_;
  std::shared_ptr<const MappedMemory> block_;  // small batches lie in it one behind the other
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
