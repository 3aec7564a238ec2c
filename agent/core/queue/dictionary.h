#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "agent/core/mutex.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/pool.h"
#include "agent/core/record.h"
#include "google/protobuf/message_lite.h"

namespace msprobe::v1 {
class Stack;
}

namespace msprobe::core {

// The interned definitions of a session. Equal content gets the same number; numbers count from 1.
//
// Entries are never changed or removed, so pointers to them are valid as long as the dictionary. An entry's content is
// in the session's memory before its number is returned. A stack is a list of frames, each kept once, so a program that
// nests deeply needs four bytes for a frame of a stack.
// Threads: any.
class Dictionary {
 public:
  // How many values a fragment of a structure takes from each column.
  struct Slots {
    uint32_t tensors = 0, integers = 0, floats = 0, booleans = 0, strings = 0;
    bool operator==(const Slots&) const = default;
  };
  struct StructureEntry {
    std::string_view content;  // serialized v1::Structure
    uint64_t hash = 0;         // XXH3-64 of content
    Slots slots;
    bool is_scalars = false;  // of RecordKind::kScalars
  };

  // `stack_room`: about how many bytes stacks and their frames may take.
  explicit Dictionary(std::shared_ptr<SessionMemory> memory = SessionMemory::Private(),
                      size_t stack_room = std::numeric_limits<size_t>::max())
      : memory_(std::move(memory)), stack_room_(stack_room) {}

  // Takes over the content of a dead process's dictionary, without entries that make no sense. Call before any Define.
  void Restore(std::vector<SessionMemory::Left::Piece> chunks);

  StructureId DefineStructure(const Structure& structure);
  // 0: there is no room for another stack.
  StackId DefineStack(std::span<const Frame> innermost_first);
  ParentId DefineParent(std::string_view full_name);

  // The hashes that name a structure and a parent outside of this session; for parent 0 the hash is 0. nullopt: one of
  // the numbers is unknown.
  struct Hashes {
    uint64_t structure = 0;
    uint64_t parent = 0;
  };
  std::optional<Hashes> hashes(StructureId structure, ParentId parent) const;

  // Null: the number is unknown.
  const StructureEntry* structure(StructureId id) const;
  bool has_stack(StackId id) const;
  // The frames as defined, which may still lack source lines. None: the number is unknown.
  v1::Stack stack(StackId id) const;
  const std::string_view* parent(ParentId id) const;
  // The largest numbers so far.
  StructureId structures() const;
  StackId stacks() const;

 private:
  // kStackText, a serialized v1::Stack, comes only from a dead process of an earlier version.
  enum class Kind : uint32_t { kStructure = 1, kStackText = 2, kParent = 3, kFrame = 4, kStack = 5 };
  struct Head;
  struct Chunk {
    MappedMemory memory;
    Listing listing;
    size_t size = 0;
  };
  struct TextEntry {
    std::string_view content;  // null data: the number is unknown
    uint64_t hash = 0;         // XXH3-64 of content; parents only
  };
  struct StackEntry {
    std::string_view content;  // FrameIds, or text; null data: the number is unknown
    bool is_text = false;
  };
  using FrameId = uint32_t;
  template <typename Entry>
  struct Table {
    PooledDeque<Entry> entries;
    PooledMap<absl::string_view, uint32_t> ids;  // by content

    const Entry* Find(uint32_t id) const;
    Entry& At(uint32_t id);
  };

  // The number of the content: that of an equal entry, or a new one.
  template <typename Entry>
  uint32_t Intern(Kind kind, std::string_view content, Table<Entry>& table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, for stacks and frames. 0: there is no room for new content.
  template <typename Entry>
  uint32_t InternBounded(Kind kind, std::string_view content, Table<Entry>& table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string_view Keep(Kind kind, uint32_t id, std::string_view content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RestoreChunk(const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<SessionMemory> memory_;
  const size_t stack_room_;

  mutable Mutex mu_;
  PooledVector<Chunk> chunks_ ABSL_GUARDED_BY(mu_);  // the entries' content
  Table<StructureEntry> structures_ ABSL_GUARDED_BY(mu_);
  Table<StackEntry> stacks_ ABSL_GUARDED_BY(mu_);
  Table<TextEntry> frames_ ABSL_GUARDED_BY(mu_);  // serialized v1::Frame
  size_t stack_bytes_ ABSL_GUARDED_BY(mu_) = 0;   // about what both take
  Table<TextEntry> parents_ ABSL_GUARDED_BY(mu_);
};

// Serializes equal messages to equal bytes. Definitions are hashed over these bytes.
std::string SerializeDeterministic(const google::protobuf::MessageLite& message);

}  // namespace msprobe::core
