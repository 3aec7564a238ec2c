#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/stats/statistics.h"

namespace msprobe::capture {

// Bytes from one DeviceRow to the next, as DeviceStatistics::Launch has written them piece by piece.
inline constexpr size_t kRowStride = 64;

// The statistics of a tensor of `type` from its pieces' rows on the host; piece_elements has the elements of each.
// repeats: as CombinePieces has it.
stats::Statistics CombineRows(const std::byte* rows, std::span<const int64_t> piece_elements, c10::ScalarType type,
                              int64_t repeats);

}  // namespace msprobe::capture
