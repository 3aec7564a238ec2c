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
  uint32_t narrow = 0;      // counted in leaves, not floats, as are the next two
  uint32_t wide = 0;
  uint32_t integer = 0;
  uint32_t crc32 = 0;
  uint32_t xor64 = 0;
  uint32_t payload = 0;
  uint32_t integers = 0;
  uint32_t floats = 0;
  uint32_t booleans = 0;
  uint32_t strings = 0;
  uint32_t producers = 0;  // columns edge_distance and edge_leaf
};

// Whether a leaf with this edge has a producer. So does each kind that a later version adds.
inline bool NamesProducer(uint32_t edge) { return edge >= v1::EDGE_SAME; }

// The statistics of a leaf are in exactly one of three columns; LEAF_INTEGER wins over LEAF_WIDE.
inline bool TakesInteger(uint32_t leaf_flags) {
  return (leaf_flags & v1::LEAF_STATISTICS) && (leaf_flags & v1::LEAF_INTEGER);
}
inline bool TakesWide(uint32_t leaf_flags) {
  return (leaf_flags & v1::LEAF_STATISTICS) && !(leaf_flags & v1::LEAF_INTEGER) && (leaf_flags & v1::LEAF_WIDE);
}
inline bool TakesNarrow(uint32_t leaf_flags) {
  return (leaf_flags & v1::LEAF_STATISTICS) && !(leaf_flags & (v1::LEAF_INTEGER | v1::LEAF_WIDE));
}

// Moves `next` past the columns of a leaf with these flags.
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

// Returns null if the id is unknown.
using SummaryLookup = absl::FunctionRef<const StructureSummary*(uint64_t structure_id)>;
using StackLookup = absl::FunctionRef<bool(uint64_t stack_id)>;

// Checks a whole block: every column has the length that fragments and flags require, every index is inside its table,
// and every id is known. So a reader that uses the returned offsets stays inside the columns.
// InvalidArgument names the column or index, its value and what is allowed.
absl::StatusOr<std::vector<FragmentColumns>> CheckBlock(const v1::Block& block, SummaryLookup structure,
                                                        StackLookup has_stack);

}  // namespace msprobe::server
