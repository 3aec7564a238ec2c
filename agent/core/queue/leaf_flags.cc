#include "agent/core/queue/leaf_flags.h"

#include <cfloat>
#include <cmath>

#include "msprobe/v1/record.pb.h"

namespace msprobe::core {
namespace {

bool InRange(double value) { return !std::isfinite(value) || std::abs(value) <= FLT_MAX; }

bool Exact(double value) {
  return !std::isfinite(value) ||
         (std::abs(value) <= FLT_MAX && static_cast<double>(static_cast<float>(value)) == value);
}

}  // namespace

bool FitsFloats(const Leaf& leaf) {
  return Exact(leaf.max) && Exact(leaf.min) && InRange(leaf.mean) && InRange(leaf.norm) && InRange(leaf.variance);
}

bool HasNonFinite(const Leaf& leaf) {
  return leaf.nan_count > 0 || leaf.positive_inf_count > 0 || leaf.negative_inf_count > 0;
}

uint32_t LeafFlags(const Leaf& leaf) {
  uint32_t flags = v1::LEAF_NONE;
  if (leaf.has_statistics) {
    flags |= v1::LEAF_STATISTICS;
    if (leaf.is_integer) {
      flags |= v1::LEAF_INTEGER;
    } else if (leaf.is_wide || !FitsFloats(leaf)) {
      flags |= v1::LEAF_WIDE;
    }
  }
  if (leaf.crc32.has_value()) flags |= v1::LEAF_CRC32;
  if (leaf.xor64.has_value()) flags |= v1::LEAF_XOR;
  if (leaf.reused) flags |= v1::LEAF_REUSED;
  if (leaf.payload != nullptr) flags |= v1::LEAF_PAYLOAD;
  return flags;
}

}  // namespace msprobe::core
