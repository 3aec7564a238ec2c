#pragma once

#include <cstddef>
#include <cstdint>
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

namespace msprobe::core {

// What a session has interned. Equal content gets the equal number; numbers count from 1.
//
// Entries are never changed nor removed, so the pointers given out stay valid as long as the dictionary. Their content
// lies in the session's memory before a number is given.
// Threads: any.
class Dictionary {
 public:
  // How many column values a fragment of a structure takes.
  struct Slots {
    uint32_t tensors = 0, integers = 0, floats = 0, booleans = 0, strings = 0;
    bool operator==(const Slots&) const = default;
  };
  struct StructureEntry {
    std::string_view content;  // serialized v1::Structure
    uint64_t hash = 0;         // XXH3-64 of content
    Slots slots;
  };

  explicit Dictionary(std::shared_ptr<SessionMemory> memory = SessionMemory::Private()) : memory_(std::move(memory)) {}

  // Before anything is defined: what a dictionary held when its process died. What makes no sense is left out.
  void Restore(std::vector<SessionMemory::Left::Piece> chunks);

  StructureId DefineStructure(const Structure& structure);
  StackId DefineStack(std::span<const Frame> innermost_first);
  ParentId DefineParent(std::string_view full_name);

  // What names a fragment's structure and parent outside of this session; a parent 0 has 0. Nothing: one of the numbers
  // was never given.
  struct Hashes {
    uint64_t structure = 0;
    uint64_t parent = 0;
  };
  std::optional<Hashes> hashes(StructureId structure, ParentId parent) const;

  // Null for a number that was never given.
  const StructureEntry* structure(StructureId id) const;
  // Serialized v1::Stack of the frames as they were given: a source may still have to be read.
  const std::string_view* stack(StackId id) const;
  const std::string_view* parent(ParentId id) const;
  // The largest numbers given.
  StructureId structures() const;
  StackId stacks() const;

 private:
  enum class Kind : uint32_t { kStructure = 1, kStack = 2, kParent = 3 };
  struct Head;
  struct Chunk {
    MappedMemory memory;
    Listing listing;
    size_t size = 0;
  };
  struct TextEntry {
    std::string_view content;  // empty data: the number is not known
    uint64_t hash = 0;         // XXH3-64 of content; of parents only
  };
  template <typename Entry>
  struct Table {
    PooledDeque<Entry> entries;
    PooledMap<absl::string_view, uint32_t> ids;  // by an entry's content

    const Entry* Find(uint32_t id) const;
    Entry& At(uint32_t id);
  };

  // The number of equal content, or a new one.
  template <typename Entry>
  uint32_t Intern(Kind kind, std::string_view content, Table<Entry>& table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string_view Keep(Kind kind, uint32_t id, std::string_view content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RestoreChunk(const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<SessionMemory> memory_;

  mutable Mutex mu_;
  PooledVector<Chunk> chunks_ ABSL_GUARDED_BY(mu_);  // definitions one behind the other
  Table<StructureEntry> structures_ ABSL_GUARDED_BY(mu_);
  Table<TextEntry> stacks_ ABSL_GUARDED_BY(mu_);
  Table<TextEntry> parents_ ABSL_GUARDED_BY(mu_);
};

// Bytes that are the same for equal messages; definitions are hashed over them.
std::string SerializeDeterministic(const google::protobuf::MessageLite& message);

}  // namespace msprobe::core
