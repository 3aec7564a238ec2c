#pragma once

#include <cstdint>

#include "agent/core/record.h"

namespace msprobe::core {

// Which columns of a block a leaf takes: bits of v1::LeafFlag.
uint32_t LeafFlags(const Leaf& leaf);
// Whether it has a NonFinite.
bool HasNonFinite(const Leaf& leaf);

// Whether the five statistics of a float leaf survive being kept as floats: max and min exactly, the others in range.
bool FitsFloats(const Leaf& leaf);

}  // namespace msprobe::core
