#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/core/loss.h"
#include "agent/core/mutex.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/payload/session_origin.pb.h"
#include "agent/core/payload/shared_file.h"
#include "agent/core/pool.h"

namespace msprobe::core {

class SessionMemory;

// The content of a piece of a session's memory.
enum class PieceKind : uint32_t {
  kQueue = 1,       // entries of the FragmentQueue
  kDictionary = 2,  // definitions
  kBatch = 3,       // a serialized v1::AgentMessage with a batch
  kPayload = 4,     // the bytes of a tensor that a batch has announced
};

struct PieceFacts {
  // kQueue: entries of the queue before this piece. kBatch: the batch's sequence. kPayload: the sequence of the batch
  // that announced it first.
  uint64_t number = 0;
  uint64_t last_entry = 0;  // kBatch, as are the next two: see PackedBatch
  uint64_t fragments = 0;
  uint32_t first_step = 0;
  std::string_view hash = {};  // kPayload: 16 bytes
};

// An entry in the memory's table, by which another process finds a piece when it takes the memory over. The destructor
// removes the entry, which must happen before the piece is freed. Empty if the memory is private.
//
// Threads: one at a time.
class Listing {
 public:
  Listing() = default;
  Listing(Listing&& other) noexcept : memory_(std::move(other.memory_)), slot_(std::exchange(other.slot_, nullptr)) {}
  Listing& operator=(Listing&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~Listing() { Clear(); }

  // The first `used` bytes of the piece are complete. Later bytes are ignored.
  void SetUsed(uint64_t used);
  void Clear();
  bool empty() const { return slot_ == nullptr; }

 private:
  friend class SessionMemory;
  struct Slot;

  Listing(std::shared_ptr<SessionMemory> memory, Slot* slot) : memory_(std::move(memory)), slot_(slot) {}

  std::shared_ptr<SessionMemory> memory_;
  Slot* slot_ = nullptr;
};

// Holds everything of a session that no server has yet, in a SharedFile, so that it outlives the process: chunks of the
// queue, definitions, batches and payloads. They are pieces that a table lists. Another process can take the memory
// over and go on in place of the dead one (LeftSession).
//
// The file has a header, the first entries of the table, and pieces at multiples of a page. Further entries of the
// table are in pieces of their own. The memory survives the death of the process, not that of the machine: nothing is
// written to a disk on purpose. The process may die at any moment, because of the order of stores:
//
// 1. An entry counts while its kind is not 0. The kind is set last, and is cleared before the piece is used again.
// 2. The first `used` bytes of a piece count. `used` grows only when the new bytes are complete.
// 3. A queue's chunk is listed until a batch with its last entry is listed. Entries up to the last batch's last_entry
//    are in batches. So a sequence never changes its bytes, and the server's watermark makes sure that each counts
//    once.
// 4. NoteCut, NoteFreed and the losses are in the header. Each says how it is read if the process dies within it.
//
// Without a file (Private) everything works in the same way, but nothing outlives the process.
//
// Threads: any; each Note function from one thread at a time.
class SessionMemory : public std::enable_shared_from_this<SessionMemory> {
 public:
  static std::shared_ptr<SessionMemory> Private();
  // Makes a file at `path` with room for pieces of `room` bytes, and a symbolic link to it at `link` (empty: no link).
  // The file appears whole. Errors: see SharedFile::Create.
  static absl::StatusOr<std::shared_ptr<SessionMemory>> Create(const std::string& path, const std::string& link,
                                                               size_t room, const SessionOrigin& origin);

  struct Left;
  // Takes over the memory that a dead process left. Errors: see SharedFile::TakeOver. DataLoss: the file is damaged or
  // has an unknown format; it stays as it is.
  static absl::StatusOr<Left> TakeOver(const std::string& path, const std::string& link);
  // The process may be alive. DataLoss, NotFound, PermissionDenied as above.
  static absl::StatusOr<SessionOrigin> ReadOrigin(const std::string& path);

  ~SessionMemory();

  // Whole pages in the file. Empty: there is no room, or no file.
  MappedMemory Allocate(size_t size, SharedFile::Use use) const;
  // The same, but private memory if there is no room. Empty: there is no memory at all.
  MappedMemory AllocateRecords(size_t size) const;
  // A part of what a dead process left. Call before any Allocate. See SharedFile::Claim.
  MappedMemory Claim(uint64_t offset, size_t size) const;
  // Lists the `size` bytes at `offset`, the first `used` of which are complete. Empty: the table cannot grow.
  Listing List(PieceKind kind, uint64_t offset, size_t size, const PieceFacts& facts, uint64_t used);
  // Lists a whole piece. Empty: the table cannot grow, or the piece is not in the file.
  Listing List(PieceKind kind, const MappedMemory& piece, const PieceFacts& facts, uint64_t used);

  // A batch was cut, and listed if there was room. If the process dies before both numbers are stored, the batch is the
  // last one listed, or it is lost and its entries are still in the queue.
  void NoteCut(uint64_t sequence, uint64_t last_entry);
  void NoteFreed(uint64_t freed_through);
  // Losses after the queue's entry `after`. The n-th loss has no marker yet if the queue ends before entry after + n.
  void NoteLosses(uint64_t after, std::span<const Loss> losses);
  // The server that has welcomed the session, if several were named.
  void NoteServer(std::string_view address);

  bool outlives() const { return file_ != nullptr; }
  // Whether anything found no room in the file and is in private memory instead.
  bool lacked_room() const { return lacked_room_; }
  const std::string& path() const;
  // The file name in SharedFile::kDirectory or beside the spool, by which a server finds the memory.
  std::string name() const;
  size_t listed() const;

  // Removes the file, the link, and the directories made for them if they are empty.
  void Remove();
  // From now on, everything stays as it is for the next process, whatever this one destroys.
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class Listing;
  struct Header;
  struct Table;

  SessionMemory(std::shared_ptr<SharedFile> file, std::string link);

  absl::Status Begin(const SessionOrigin& origin);
  absl::Status ReadLeft(Left* left);
  absl::Status ReadTables(Left* left) ABSL_LOCKS_EXCLUDED(mu_);
  Listing::Slot* TakeSlot() ABSL_LOCKS_EXCLUDED(mu_);
  void AddSlots(std::span<Listing::Slot> slots) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Free(Listing::Slot* slot) ABSL_LOCKS_EXCLUDED(mu_);
  Header* header() const;

  const std::shared_ptr<SharedFile> file_;  // null: Private
  // Constant after Create or TakeOver.
  std::string link_, spool_directory_;
  MappedMemory header_piece_, origin_piece_;
  mutable std::atomic<bool> lacked_room_{false};

  mutable Mutex mu_;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  PooledVector<MappedMemory> tables_ ABSL_GUARDED_BY(mu_);
  Table* last_table_ ABSL_GUARDED_BY(mu_) = nullptr;
  PooledVector<Listing::Slot*> free_ ABSL_GUARDED_BY(mu_);
  size_t listed_ ABSL_GUARDED_BY(mu_) = 0;
};

struct SessionMemory::Left {
  struct Piece {
    PieceKind kind;
    MappedMemory memory;
    Listing listing;
    PieceFacts facts;
    std::string hash;   // owns the bytes of facts.hash
    uint64_t used = 0;  // at most memory.size()
  };

  std::shared_ptr<SessionMemory> memory;
  SessionOrigin origin;
  std::string server;  // from NoteServer; empty: none
  uint64_t freed_through = 0, cut_through = 0, cut_entry = 0;
  std::vector<Piece> pieces;  // sorted by kind and number
  uint64_t losses_after = 0;
  std::vector<Loss> losses;
};

}  // namespace msprobe::core
