#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "agent/core/queue/dictionary.h"
#include "agent/core/record.h"
#include "agent/core/transport/packing/source_lines.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// The definitions of structures and stacks that batches refer to by hash. A batch carries each definition that it is
// the first to use. The source lines of stacks are read here, from the disk.
//
// Threads: one.
class Definitions {
 public:
  // `dictionary` outlives this.
  explicit Definitions(const Dictionary* dictionary) : dictionary_(*dictionary) {}

  // The hash by which a block refers to the structure or the stack. Adds the definition to `batch` where no earlier
  // batch has it, and its size to `bytes`.
  uint64_t AddStructure(const Dictionary::StructureEntry& structure, v1::Batch* batch, size_t* bytes);
  uint64_t AddStack(StackId id, v1::Batch* batch, size_t* bytes);

  // Adds all the definitions of the session so far, for a server that has lost them. They count as sent.
  void CopyAll(v1::Batch* batch);

 private:
  static v1::Definition Of(const Dictionary::StructureEntry& structure);
  v1::Definition Resolved(const v1::Stack& given);
  void Add(v1::Definition definition, v1::Batch* batch, size_t* bytes);

  const Dictionary& dictionary_;
  SourceLines source_lines_;
  absl::flat_hash_set<uint64_t> sent_;  // hashes
  absl::flat_hash_map<StackId, uint64_t> stack_hashes_;
};

}  // namespace msprobe::core
