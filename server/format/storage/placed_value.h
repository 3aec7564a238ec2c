#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

// A record's value with the places of its numbers instead of the numbers. Equal steps have equal placed values.
// Borrows from structures and blocks.
struct PlacedValue {
  struct Item;
  enum class Kind : uint8_t { kNone, kBoolean, kInteger, kReal, kText, kJson, kList, kDict, kTensor };

  Kind kind = Kind::kNone;
  bool boolean = false;
  bool has_payload = false;  // kTensor
  // kInteger, kReal, kTensor: index of the value in the column of its kind (Block.integers, Block.floats, the columns
  // of leaves), counted over all blocks in order of arrival.
  uint64_t place = 0;
  uint64_t ordinal = 0;                        // kTensor: of its fragment
  const v1::Node::TensorSlot* slot = nullptr;  // kTensor
  const std::string* text = nullptr;           // kText, kJson
  std::vector<Item> items;                     // kDict: by key; kList: keys are empty
};

struct PlacedValue::Item {
  Item(std::string_view key, PlacedValue value) : key(key), value(std::move(value)) {}

  std::string_view key;
  PlacedValue value;
};

// Where the values of a block begin, if each column is counted over all blocks of a step.
struct BlockPlaces {
  uint64_t fragments = 0;
  uint64_t leaves = 0;
  uint64_t integers = 0;
  uint64_t floats = 0;

  // Moves past the values of one block.
  void Skip(const v1::Block& block) {
    fragments += static_cast<uint64_t>(block.structure_size());
    leaves += static_cast<uint64_t>(block.leaf_flags_size());
    integers += static_cast<uint64_t>(block.integers_size());
    floats += static_cast<uint64_t>(block.floats_size());
  }
};

// The fields of one fragment in the form of DecodeFields, but with places. The block must have passed CheckBlock, which
// returned `start`.
PlacedValue PlaceFields(const v1::Structure& structure, const v1::Block& block, FragmentColumns start,
                        const BlockPlaces& places);

// Merges `addition` into `target` by the rules of MergeValue.
void MergePlaced(PlacedValue& target, PlacedValue&& addition);

}  // namespace msprobe::server
