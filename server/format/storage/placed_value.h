#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

// A record's value without its numbers: where they stand. Steps that repeat have the same.
// Borrows from structures and blocks.
struct PlacedValue {
  enum class Kind : uint8_t { kNone, kBoolean, kInteger, kReal, kText, kJson, kList, kDict, kTensor };

  Kind kind = Kind::kNone;
  bool boolean = false;
  bool has_payload = false;  // of a tensor
  // kInteger, kReal, kTensor: index of its value in the column of its kind (Block.integers, Block.floats, the columns
  // of leaves), counted over all blocks in order of arrival.
  uint64_t place = 0;
  const v1::Node::TensorSlot* slot = nullptr;                   // kTensor
  const std::string* text = nullptr;                            // kText, kJson
  std::vector<std::pair<std::string_view, PlacedValue>> items;  // kDict: by key; kList: keys are empty
};

// Where the values of a block begin in columns that are counted over all blocks of a step.
struct BlockPlaces {
  uint64_t fragments = 0;
  uint64_t leaves = 0;
  uint64_t integers = 0;
  uint64_t floats = 0;

  // Moves on by the values of one block.
  void Skip(const v1::Block& block) {
    fragments += static_cast<uint64_t>(block.structure_size());
    leaves += static_cast<uint64_t>(block.leaf_flags_size());
    integers += static_cast<uint64_t>(block.integers_size());
    floats += static_cast<uint64_t>(block.floats_size());
  }
};

// The fields of one fragment, as DecodeFields gives them with their numbers. The block must have passed CheckBlock,
// which gave `start`.
PlacedValue PlaceFields(const v1::Structure& structure, const v1::Block& block, FragmentColumns start,
                        const BlockPlaces& places);

// Puts `addition` into `target` as MergeValue does.
void MergePlaced(PlacedValue& target, PlacedValue&& addition);

}  // namespace msprobe::server
