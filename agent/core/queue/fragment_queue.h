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

// A part of the queue: consecutive entries, each a multiple of eight bytes.
struct Chunk {
  MappedMemory memory;
  MappedMemory left;  // the piece of a dead process; `memory` is then a copy of it
  Listing listing;    // lists `left` or `memory`
  size_t size = 0;    // bytes in use
  char* bytes() const { return reinterpret_cast<char*>(memory.get()); }
  size_t charged = 0;   // bytes of fragments, which count against the budget; markers are free
  uint64_t before = 0;  // entries of the queue before the first one here
  uint64_t entries = 0;
  std::vector<std::shared_ptr<Payload>> payloads;         // those of the leaves, in order
  std::vector<std::shared_ptr<PendingReading>> pendings;  // those of the leaves, in order
};

// Bytes that `fragment` takes in a chunk.
size_t EncodedSize(const Fragment& fragment);

// The way from the capturing threads to the sender. There is one order for all threads: an entry follows every entry
// whose Append had returned before. So a marker follows everything that was emitted before it.
//
// Invariants:
// 1. Append copies the fragment, which may then be destroyed. Once the first chunks exist, Append allocates nothing,
//    unless a fragment is larger than a chunk.
// 2. A loss becomes a gap marker before anything that is appended after the loss.
// 3. The mutex is held only while copying, never while waiting for room. Callers ask their MemoryBudget first.
// 4. When Append has returned, its copy is in the session's memory until its chunk is recycled. It says where the bytes
//    of its payloads lie, so whoever takes the entry keeps them as long.
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

  // Asks the sender to take all entries now. Returns the number of entries appended so far.
  uint64_t Flush();

  struct Fill {
    bool empty = true;
    bool urgent = false;       // there is a full chunk or a marker, or Flush was called
    Clock::time_point oldest;  // when the oldest entry was appended
  };
  Fill fill() const;

  std::vector<Chunk> Take();
  // Call only when the chunk's entries are in batches that the session's memory lists.
  void Recycle(Chunk chunk);

  // Takes over the chunks of a dead process's queue, in order, and its losses that have no marker. The first `packed`
  // entries are in batches already. Returns the number of entries whose bytes make no sense. Call before any Append.
  uint64_t Restore(std::vector<SessionMemory::Left::Piece> chunks, uint64_t packed, uint64_t losses_after,
                   const std::vector<Loss>& losses);

  // From now on, nothing is appended.
  void Close();

 private:
  char* Reserve(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The reserved bytes have been written.
  void Commit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutMarker(const v1::Marker& marker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutLosses(uint32_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Restores the entries in the first `used` bytes of the chunk, which begins after `before` entries of the queue. The
  // first `known` entries of the queue are skipped. Returns 1 if an entry makes no sense; the rest is then ignored.
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
  // Memory into which readings of a session that its process has closed may still arrive, so it must not be used.
  std::vector<MappedMemory> avoided_ ABSL_GUARDED_BY(mu_);
};

// Walks the entries of a chunk. fragment() and marker() are valid until the next call of Next.
class ChunkReader {
 public:
  explicit ChunkReader(Chunk* chunk) : chunk_(chunk) {}

  bool Next();
  bool is_marker() const { return is_marker_; }
  std::string_view marker() const { return marker_; }  // serialized v1::Marker
  const Fragment& fragment() const { return fragment_; }
  std::vector<Leaf>& leaves() { return leaves_; }  // the leaves of fragment(), to be completed or emptied
  // Drops the digest, which no longer matches.
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
