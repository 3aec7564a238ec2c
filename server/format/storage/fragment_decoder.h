#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

// Fills the slots of one fragment: its structure's fields with the values of the block's columns.
// The block must have passed CheckBlock, which gave `start`. `non_finite` maps a leaf to its place in Block.non_finite.
// `fields` becomes a dict.
void DecodeFields(const v1::Structure& structure, const v1::Block& block, FragmentColumns start,
                  const absl::flat_hash_map<uint32_t, int>& non_finite, v1::Value& fields);

// "torch.float32"; numpy arrays have no prefix; DTYPE_OTHER prints its name.
std::string DTypeName(const v1::Node::TensorSlot& slot);

// Puts `addition` into `target`: dicts by key, lists by index, anything else by the later value that is not null.
// What is left of the addition is unspecified. Cheap when both lie on the same arena, or on none.
void MergeValue(v1::Value& target, v1::Value&& addition);

}  // namespace msprobe::server
