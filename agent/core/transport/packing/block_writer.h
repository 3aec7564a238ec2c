#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "agent/core/queue/dictionary.h"
#include "agent/core/record.h"
#include "agent/core/transport/packing/definitions.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// A payload that a batch announces.
struct AnnouncedPayload {
  std::string hash;
  std::shared_ptr<Payload> payload;
};

// Writes fragments into the columns of a block: the fragments of one pass, one behind the other. Structures, stacks,
// parents and shapes stand in tables of the block, each once.
//
// Threads: one.
class BlockWriter {
 public:
  // Both outlive this.
  BlockWriter(const Dictionary* dictionary, Definitions* definitions)
      : dictionary_(*dictionary), definitions_(*definitions) {}

  // Whether a block of this pass is open.
  bool IsOpen(uint32_t step, uint32_t token) const {
    return block_ != nullptr && block_->step() == step && block_->token() == token;
  }
  // Opens a block at the end of `batch`, which outlives it.
  void Open(v1::Batch* batch, uint32_t step, uint32_t token);
  // The same for scalars, whose blocks stand apart (Item.scalars).
  void OpenScalars(v1::Batch* batch, uint32_t step);
  void Close() { block_ = nullptr; }

  // Adds a fragment, which fits its structure and whose ids the dictionary knows, to the open block. The payloads of
  // `leaves` move to `announced`; one that has no name yet is hashed. Returns about how many bytes the batch grew by.
  size_t Add(const Fragment& fragment, std::vector<Leaf>& leaves, std::vector<AnnouncedPayload>* announced);

 private:
  void Begin(v1::Batch* batch, v1::Block* block, uint32_t step, uint32_t token);
  void AddLeaf(Leaf& leaf, std::vector<AnnouncedPayload>* announced);
  uint32_t StructureIndex(StructureId id);
  uint32_t StackIndex(StackId id);
  uint32_t ParentIndex(ParentId id);
  uint32_t ShapeIndex(std::span<const int64_t> shape);

  const Dictionary& dictionary_;
  Definitions& definitions_;
  v1::Batch* batch_ = nullptr;
  v1::Block* block_ = nullptr;  // of batch_
  uint64_t last_ordinal_ = 0;   // in block_
  size_t bytes_ = 0;            // an estimate, of the fragment that is being added
  // Indices into the tables of block_.
  absl::flat_hash_map<uint32_t, uint32_t> structure_index_, stack_index_, parent_index_;
  absl::flat_hash_map<absl::InlinedVector<int64_t, 6>, uint32_t> shape_index_;
};

}  // namespace msprobe::core
