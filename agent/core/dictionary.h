#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "agent/core/mutex.h"
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
    uint64_t hash = 0;    // XXH3-64 of content
    std::string content;  // serialized v1::Structure
    Slots slots;
  };

  StructureId DefineStructure(const Structure& structure);
  StackId DefineStack(std::span<const Frame> innermost_first);
  ParentId DefineParent(std::string_view full_name);

  // Null for a number that was never given.
  const StructureEntry* structure(StructureId id) const;
  const std::vector<Frame>* stack(StackId id) const;
  const std::string* parent(ParentId id) const;

 private:
  mutable Mutex mu_;
  std::deque<StructureEntry> structures_ ABSL_GUARDED_BY(mu_);
  std::deque<std::vector<Frame>> stacks_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> parents_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, StructureId> structure_ids_ ABSL_GUARDED_BY(mu_);  // by content
  absl::flat_hash_map<std::string, StackId> stack_ids_ ABSL_GUARDED_BY(mu_);          // by serialized frames
  absl::flat_hash_map<std::string, ParentId> parent_ids_ ABSL_GUARDED_BY(mu_);
};

// Bytes that are the same for equal messages; definitions are hashed over them.
std::string SerializeDeterministic(const google::protobuf::MessageLite& message);

}  // namespace msprobe::core
