#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/doorbell.h"
#include "agent/core/loss.h"
#include "agent/core/mutex.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/record.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// A piece of the queue: entries one behind the other, each a multiple of eight bytes.
struct Chunk {
  MappedMemory memory;
  MappedMemory left;  // where a dead process had it; memory is a copy then
  Listing listing;    // of one of both
  size_t size = 0;
  char* bytes() const { return reinterpret_cast<char*>(memory.get()); }
  size_t charged = 0;   // of fragments, which the budget was asked for; markers are free
  uint64_t before = 0;  // entries of the queue before its first
  uint64_t entries = 0;
  std::vector<std::shared_ptr<Payload>> payloads;         // of the leaves that have one, in order
  std::vector<std::shared_ptr<PendingReading>> pendings;  // as well
};

// Bytes that `fragment` takes in a chunk.
size_t EncodedSize(const Fragment& fragment);

// From the capturing threads to the sender. One order for all threads: an entry appended after another has returned
// stands behind it, so a marker follows everything that was emitted before it.
//
// Invariants:
// 1. Append copies; the fragment may die when it returns. Once the first chunks exist it allocates nothing, but for a
//    fragment larger than a chunk.
// 2. A loss stands in the queue as a gap marker before anything that was appended after it.
// 3. The mutex is held for the copy only, never while waiting for room: the caller asks its MemoryBudget before.
// 4. What an Append that has returned has copied lies in the session's memory, until its chunk is recycled.
//
// Threads: Append, AppendMarker, AddLoss, Flush and Close from any; Take, Recycle and Restore from the sender.
class FragmentQueue {
 public:
  using Clock = Doorbell::Clock;

  explicit FragmentQueue(Doorbell* bell, std::shared_ptr<SessionMemory> memory = SessionMemory::Private())
      : bell_(bell), memory_(std::move(memory)) {}

  void Append(const Fragment& fragment);
  void AppendMarker(const v1::Marker& marker);

  void AddLoss(const Loss& loss);

  // Entries appended so far; the sender is asked to take them now.
  uint64_t Flush();

  struct Fill {
    bool empty = true;
    bool urgent = false;       // a full chunk, a marker, or Flush
    Clock::time_point oldest;  // when the oldest entry came
  };
  Fill fill() const;

  std::vector<Chunk> Take();
  // Only once what it held is in batches that the session's memory lists.
  void Recycle(Chunk chunk);

  // Before anything is appended: what a queue held when its process died, chunks in their order, and its losses without
  // a marker. The first `packed` entries are in batches. Gives the number of entries whose bytes make no sense.
  uint64_t Restore(std::vector<SessionMemory::Left::Piece> chunks, uint64_t packed, uint64_t losses_after,
                   const std::vector<Loss>& losses);

  // Nothing is appended any more.
  void Close();

 private:
  char* Reserve(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What was reserved is whole.
  void Commit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutMarker(const v1::Marker& marker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutLosses(uint32_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the `used` bytes copied into the chunk, `before` entries behind the queue's first, those behind the `known`
  // first ones. 1: there is one whose bytes make no sense, and what follows it is not looked at.
  uint64_t RestoreEntries(size_t used, uint64_t known, uint64_t before, Chunk* chunk)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RestorePayloads(char* entry, Chunk* chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Doorbell* const bell_;
  const std::shared_ptr<SessionMemory> memory_;

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Chunk> full_ ABSL_GUARDED_BY(mu_);
  Chunk open_ ABSL_GUARDED_BY(mu_);
  std::vector<Chunk> spare_ ABSL_GUARDED_BY(mu_);
  uint64_t appended_ ABSL_GUARDED_BY(mu_) = 0;
  bool urgent_ ABSL_GUARDED_BY(mu_) = false;
  Clock::time_point oldest_ ABSL_GUARDED_BY(mu_);
  std::vector<Loss> losses_ ABSL_GUARDED_BY(mu_);  // one for each step and reason
  // Of readings that were under way in a process that has closed its session, and may come yet.
  std::vector<MappedMemory> avoided_ ABSL_GUARDED_BY(mu_);
};

// Walks the entries of a chunk. What fragment() and marker() give is valid until the next call of Next.
class ChunkReader {
 public:
  explicit ChunkReader(Chunk* chunk) : chunk_(chunk) {}

  bool Next();
  bool is_marker() const { return is_marker_; }
  std::string_view marker() const { return marker_; }  // serialized v1::Marker
  const Fragment& fragment() const { return fragment_; }
  std::vector<Leaf>& leaves() { return leaves_; }  // those of fragment(), to complete and to move payloads out
  // The digest of what was captured no longer holds.
  void AddFlags(uint32_t flags) {
    fragment_.flags |= flags;
    fragment_.digest = 0;
  }

 private:
  Chunk* const chunk_;
  size_t offset_ = 0;
  size_t next_payload_ = 0;
  size_t next_pending_ = 0;
  bool is_marker_ = false;
  std::string_view marker_;
  Fragment fragment_;
  std::vector<Leaf> leaves_;
  std::vector<std::string_view> strings_;
};

}  // namespace msprobe::core
