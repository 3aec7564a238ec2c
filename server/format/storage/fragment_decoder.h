#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

// Names the producer of a tensor: sets `edge`, by the ordinal and the number of the producer's Block.edge_distance.
using ProducerNames = absl::FunctionRef<void(uint64_t ordinal, uint32_t leaf, v1::Edge& edge)>;

// Decodes one fragment: sets `fields` to a dict of the structure's fields with the values of the block's columns. The
// block must have passed CheckBlock, which returned `start`. `non_finite` maps a leaf to its index in Block.non_finite.
void DecodeFields(const v1::Structure& structure, const v1::Block& block, FragmentColumns start,
                  const absl::flat_hash_map<uint32_t, int>& non_finite, ProducerNames name_producer, v1::Value& fields);

// The printed name of the slot's dtype: "torch.float32", for numpy arrays "float32", for DTYPE_OTHER the slot's own
// name.
std::string DTypeName(const v1::Node::TensorSlot& slot);

// Merges `addition` into `target`: dicts by key, lists by index, for anything else the later value that is not null.
// The addition is left unspecified. Cheap if both are on the same arena, or both on none.
void MergeValue(v1::Value& target, v1::Value&& addition);

}  // namespace msprobe::server
