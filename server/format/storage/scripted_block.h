#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// For tests: structures and blocks written by hand.

// A structure with the fields `fields`, each a list of one float32 tensor.
v1::Structure TensorStructure(const std::string& name, v1::RecordKind kind, const std::vector<std::string>& fields,
                              v1::Direction direction = v1::DIRECTION_FORWARD);

// The id of a definition with these bytes.
uint64_t IdOf(const std::string& bytes);
uint64_t IdOf(const v1::Structure& structure);

// Builds one block. Leaves are float32 of shape [2] with max = value, min = -value, mean 0, norm value, variance 1.
class BlockScript {
 public:
  BlockScript(uint32_t step, uint32_t token) {
    block_.set_step(step);
    block_.set_token(token);
    block_.add_shapes()->add_dims(2);
  }

  // Adds a fragment, with one value for each tensor of the structure. hash empty: no payload.
  BlockScript& Fragment(const v1::Structure& structure, uint32_t count, uint64_t ordinal, uint32_t flags,
                        const std::vector<float>& values, const std::string& hash = "", uint64_t size = 0);
  BlockScript& Parent(const std::string& name);  // of the last fragment
  BlockScript& Stack(uint64_t id);               // of the last fragment
  // The edge of the leaf with this number in the block. A producer: how far back, and its leaf.
  BlockScript& Edge(int leaf, v1::EdgeKind kind, int64_t distance = 0, uint32_t producer_leaf = 0);

  const v1::Block& block() const { return block_; }
  v1::Block& block() { return block_; }

 private:
  v1::Block block_;
  uint64_t last_ordinal_ = 0;
};

}  // namespace msprobe::server
