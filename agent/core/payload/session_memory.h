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

// What a piece of a session's memory holds.
enum class PieceKind : uint32_t {
  kQueue = 1,       // entries of the FragmentQueue
  kDictionary = 2,  // definitions
  kBatch = 3,       // a serialized v1::AgentMessage with a batch
  kPayload = 4,     // content of a tensor that a batch has announced
};

struct PieceFacts {
  uint64_t number = 0;      // kQueue: entries before the first; kBatch: its sequence; kPayload: that of the batch that
                            // announced it first
  uint64_t last_entry = 0;  // kBatch, as the two after it: see PackedBatch
  uint64_t fragments = 0;
  uint32_t first_step = 0;
  std::string_view hash = {};  // kPayload: 16 bytes
};

// A line of the table by which whoever takes the memory over finds a piece. It goes with this object, before the piece.
// Empty where the memory is of this process alone.
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

  // The first `used` bytes of the piece are whole. What lies behind them is not looked at.
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

// What a session holds that no server has yet, in a SharedFile, so that it outlives the process: chunks of the queue,
// definitions, batches and payloads, in pieces that a table lists. Whoever comes next takes it over and goes on as the
// process would have (LeftSession).
//
// The file: a header, the first lines of the table, and pieces at multiples of a page; further lines lie in pieces of
// their own. Only the death of the process matters, not that of the machine: nothing is written to a disk on purpose.
// The order of stores is what makes every moment a good one to die in:
//
// 1. A line counts once its kind is set, which happens last, and no more once that is 0, which happens before the piece
//    is used for anything else.
// 2. Of a piece its first `used` bytes count, which grow when what was added is whole.
// 3. A queue's chunk is listed until a batch with its last entry is. Entries up to the last batch's last_entry are
//    in batches, so every sequence keeps its bytes, and exactly once follows from the server's watermark.
// 4. NoteCut, NoteFreed and the losses stand in the header; each says how it is read where the process died within it.
//
// Without a file (Private) everything works the same and nothing outlives the process.
//
// Threads: any, but the Note functions one thread each.
class SessionMemory : public std::enable_shared_from_this<SessionMemory> {
 public:
  static std::shared_ptr<SessionMemory> Private();
  // In a new file at `path`, with room for pieces of `room` bytes, and with a symbolic link to it at `link` (empty:
  // none). The file appears whole. As SharedFile::Create.
  static absl::StatusOr<std::shared_ptr<SessionMemory>> Create(const std::string& path, const std::string& link,
                                                               size_t room, const SessionOrigin& origin);

  struct Left;
  // What a dead process left. As SharedFile::TakeOver; DataLoss: it is damaged or of a format that this version does
  // not know, and stays as it is.
  static absl::StatusOr<Left> TakeOver(const std::string& path, const std::string& link);
  // Of a living process too. DataLoss, NotFound, PermissionDenied as above.
  static absl::StatusOr<SessionOrigin> ReadOrigin(const std::string& path);

  ~SessionMemory();

  // Whole pages; empty where there is no room, or no file.
  MappedMemory Allocate(size_t size, SharedFile::Use use) const;
  // The same, of this process alone where there is no room. Empty: there is no memory at all.
  MappedMemory AllocateRecords(size_t size) const;
  // A part of what was left, before anything is allocated. As SharedFile::Claim.
  MappedMemory Claim(uint64_t offset, size_t size) const;
  // The `size` bytes at `offset`, of which `used` are whole. Empty where the table cannot grow.
  Listing List(PieceKind kind, uint64_t offset, size_t size, const PieceFacts& facts, uint64_t used);
  // A whole piece. Empty where that is not in the file, too.
  Listing List(PieceKind kind, const MappedMemory& piece, const PieceFacts& facts, uint64_t used);

  // A batch has been cut, and listed where it could be. Where the process died before both numbers stood, that batch is
  // the last one listed, or gone, and its entries are in the queue.
  void NoteCut(uint64_t sequence, uint64_t last_entry);
  void NoteFreed(uint64_t freed_through);
  // Losses that follow entry `after` of the queue; the n-th has no marker yet if the queue ends before entry after + n.
  void NoteLosses(uint64_t after, std::span<const Loss> losses);
  // Of several servers the one that has welcomed the session.
  void NoteServer(std::string_view address);

  bool outlives() const { return file_ != nullptr; }
  // Whether something had no room in the file, and is of this process alone.
  bool lacked_room() const { return lacked_room_; }
  const std::string& path() const;
  // Its name in SharedFile::kDirectory or beside the spool, by which a server finds it.
  std::string name() const;
  size_t listed() const;

  // Nobody needs it any more: the file goes, the link, and the directories made for them where they are empty.
  void Remove();
  // Everything stays as it is for whoever takes it over, whatever is destroyed from now on.
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
  // Constant once it is made or taken over.
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
    std::string hash;   // what facts.hash views
    uint64_t used = 0;  // at most memory.size()
  };

  std::shared_ptr<SessionMemory> memory;
  SessionOrigin origin;
  std::string server;  // as NoteServer; empty: none
  uint64_t freed_through = 0, cut_through = 0, cut_entry = 0;
  std::vector<Piece> pieces;  // by kind and number
  uint64_t losses_after = 0;
  std::vector<Loss> losses;
};

}  // namespace msprobe::core
