#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "agent/core/mutex.h"
#include "agent/core/pool.h"
#include "agent/core/record.h"
#include "google/protobuf/message_lite.h"

namespace msprobe::core {

// What a session has interned. Equal content gets the equal number; numbers count from 1.
//
// Entries are never changed nor removed, so the pointers given out stay valid as long as the dictionary.
// Threads: any.
class Dictionary {
 public:
  // How many column values a fragment of a structure takes.
  struct Slots {
    uint32_t tensors = 0, integers = 0, floats = 0, booleans = 0, strings = 0;
    bool operator==(const Slots&) const = default;
  };
  struct StructureEntry {
    PooledString content;  // serialized v1::Structure
    uint64_t hash = 0;     // XXH3-64 of content
    Slots slots;
  };

  StructureId DefineStructure(const Structure& structure);
  StackId DefineStack(std::span<const Frame> innermost_first);
  ParentId DefineParent(std::string_view full_name);

  // Null for a number that was never given.
  const StructureEntry* structure(StructureId id) const;
  // Serialized v1::Stack of the frames as they were given: a source may still have to be read.
  const PooledString* stack(StackId id) const;
  const PooledString* parent(ParentId id) const;

 private:
  struct TextEntry {
    PooledString content;
  };
  template <typename Entry>
  struct Table {
    PooledDeque<Entry> entries;
    PooledMap<absl::string_view, uint32_t> ids;  // by an entry's content

    uint32_t Intern(absl::string_view content);
    const Entry* Find(uint32_t id) const;
  };

  mutable Mutex mu_;
  Table<StructureEntry> structures_ ABSL_GUARDED_BY(mu_);
  Table<TextEntry> stacks_ ABSL_GUARDED_BY(mu_);
  Table<TextEntry> parents_ ABSL_GUARDED_BY(mu_);
};

// Bytes that are the same for equal messages; definitions are hashed over them.
std::string SerializeDeterministic(const google::protobuf::MessageLite& message);

}  // namespace msprobe::core
