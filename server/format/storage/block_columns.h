#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/structure_summary.h"

namespace msprobe::server {

// Where the values of one fragment begin in each column of its block.
struct FragmentColumns {
  uint64_t ordinal = 0;
  uint32_t leaf = 0;
  uint32_t statistics = 0;  // column zero_count
  uint32_t narrow = 0;      // in leaves, not floats; so are the next two
  uint32_t wide = 0;
  uint32_t integer = 0;
  uint32_t crc32 = 0;
  uint32_t xor64 = 0;
  uint32_t payload = 0;
  uint32_t integers = 0;
  uint32_t floats = 0;
  uint32_t booleans = 0;
  uint32_t strings = 0;
};

// Statistics of a leaf stand in exactly one column; LEAF_INTEGER wins over LEAF_WIDE.
inline bool TakesInteger(uint32_t leaf_flags) {
  return (leaf_flags & v1::LEAF_STATISTICS) && (leaf_flags & v1::LEAF_INTEGER);
}
inline bool TakesWide(uint32_t leaf_flags) {
  return (leaf_flags & v1::LEAF_STATISTICS) && !(leaf_flags & v1::LEAF_INTEGER) && (leaf_flags & v1::LEAF_WIDE);
}
inline bool TakesNarrow(uint32_t leaf_flags) {
  return (leaf_flags & v1::LEAF_STATISTICS) && !(leaf_flags & (v1::LEAF_INTEGER | v1::LEAF_WIDE));
}

// Moves the columns of a leaf behind one that has these flags.
inline void TakeLeaf(uint32_t flags, FragmentColumns& next) {
  ++next.leaf;
  if (flags & v1::LEAF_STATISTICS) ++next.statistics;
  if (TakesNarrow(flags)) ++next.narrow;
  if (TakesWide(flags)) ++next.wide;
  if (TakesInteger(flags)) ++next.integer;
  if (flags & v1::LEAF_CRC32) ++next.crc32;
  if (flags & v1::LEAF_XOR) ++next.xor64;
  if (flags & v1::LEAF_PAYLOAD) ++next.payload;
}

// Null when the id is unknown.
using SummaryLookup = absl::FunctionRef<const StructureSummary*(uint64_t structure_id)>;
using StackLookup = absl::FunctionRef<bool(uint64_t stack_id)>;

// Checks a block whole: every column as long as the fragments and flags ask, every index inside its table, every id
// known. After it, nothing that reads the block by these offsets can leave a column.
// InvalidArgument: the column or index, what it is and what it should be.
absl::StatusOr<std::vector<FragmentColumns>> CheckBlock(const v1::Block& block, SummaryLookup structure,
                                                        StackLookup has_stack);

}  // namespace msprobe::server
