#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/transport/outbox/spool.h"
#include "agent/core/transport/packing/packer.h"

namespace msprobe::core {

// The batches that the server has not made durable, in memory or in the spool.
//
// Invariants:
// 1. Batches have consecutive sequences: freed_through() + 1 to last_sequence().
// 2. What lies in memory is charged to the budget; what lies in the spool is not.
// 3. Once Append has returned, the session's memory lists the batch, until it is durable or spooled.
//
// Threads: one (the sender). Bytes that were given out stay valid as long as their owner, on any thread.
class HeldBatches {
 public:
  // `budget` and `spool` outlive this.
  HeldBatches(MemoryBudget* budget, Spool* spool, std::shared_ptr<SessionMemory> memory);
  ~HeldBatches();

  // announced_first: the hashes of the payloads that no earlier batch announced.
  void Append(const PackedBatch& packed, std::vector<std::string> announced_first);

  // The batches that a process held when it died.
  struct Left {
    struct Spooled {
      uint64_t sequence = 0;
      Spool::Place place;
      std::vector<std::string> announced_first;
    };
    std::vector<Spooled> spooled;  // in the order of the spool
    std::vector<SessionMemory::Left::Piece> pieces;
    std::optional<uint64_t> freed_through;  // absent: all batches before the first one that is there
    uint64_t cut_through = 0;               // the last batch that was made
    uint64_t last_entry = 0;                // the last entry of the queue that is in a batch
  };
  // Holds them from now on. Only while nothing is held. A batch that is missing has no bytes. DataLoss: what `left`
  // says contradicts itself.
  absl::Status Restore(Left left);

  void Acknowledge(uint64_t durable_through);

  uint64_t freed_through() const { return freed_through_; }
  uint64_t last_sequence() const { return freed_through_ + batches_.size(); }
  bool empty() const { return batches_.empty(); }

  // The bytes of a batch, a serialized AgentMessage. An error: the spool could not give them back, or the batch is
  // missing.
  struct Bytes {
    std::shared_ptr<const void> owner;
    std::string_view view;
  };
  absl::StatusOr<Bytes> Read(uint64_t sequence) const;
  // Gives a batch other bytes.
  void Replace(uint64_t sequence, std::string_view bytes);
  struct Summary {
    std::optional<uint32_t> first_step;  // absent: no step, or it is not known of what a dead process spooled
    uint64_t fragments = 0;
  };
  Summary SummaryOf(uint64_t sequence) const { return Get(sequence).summary; }
  // The last batch with an entry of the queue up to `entry`; freed_through() where that batch is durable.
  uint64_t SequenceOfEntry(uint64_t entry) const;

  // The payloads that the oldest batch in memory announced first. Null: no batch is in memory.
  const std::vector<std::string>* AnnouncedByOldest() const;
  // Moves the oldest batch in memory to the spool. False: the spool takes no more.
  bool SpillOldest();
  // The sequence that a key in the spool names; absent: it is no batch's.
  static std::optional<uint64_t> SequenceOfKey(std::string_view key);

  // How many batches lie in memory alone: in memory that outlives the process, or in memory that does not.
  uint64_t InMemory(bool outliving) const;

 private:
  struct Batch {
    std::shared_ptr<const MappedMemory> memory;  // several small batches may share it
    std::string_view bytes;                      // in memory
    Listing listing;
    std::optional<Spool::Place> place;  // with null memory
    uint64_t last_entry = 0;
    Summary summary;
    std::vector<std::string> announced_first;
  };

  const Batch& Get(uint64_t sequence) const { return batches_[sequence - freed_through_ - 1]; }
  Batch& Get(uint64_t sequence) { return batches_[sequence - freed_through_ - 1]; }
  // Copies the bytes into memory that outlives the process, where that has room.
  void Keep(uint64_t sequence, std::string_view bytes, Batch& batch);
  char* Reserve(size_t size, std::shared_ptr<const MappedMemory>& memory);
  void Forget(Batch& batch);

  MemoryBudget* const budget_;
  Spool* const spool_;
  const std::shared_ptr<SessionMemory> memory_;
  std::shared_ptr<const MappedMemory> block_;  // small batches lie in it one behind the other
  size_t block_used_ = 0;
  std::deque<Batch> batches_;
  uint64_t freed_through_ = 0;
  uint64_t spilled_through_ = 0;  // batches up to here are spooled or freed
  uint64_t durable_entry_ = 0;    // entries of the queue up to here are in durable batches
};

}  // namespace msprobe::core
