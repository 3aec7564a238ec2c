#pragma once

#include <cstdint>

#include "agent/core/record.h"

namespace msprobe::core {

// The columns of a block in which a leaf has values, as bits of v1::LeafFlag.
uint32_t LeafFlags(const Leaf& leaf);
// Whether the leaf has a v1::NonFinite.
bool HasNonFinite(const Leaf& leaf);

// Whether the five statistics of a float leaf fit into floats: max and min exactly, the others within the range.
bool FitsFloats(const Leaf& leaf);

}  // namespace msprobe::core
