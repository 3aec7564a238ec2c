#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/stats/statistics.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// Bytes from one DeviceRow to the next, piece by piece.
inline constexpr size_t kRowStride = 64;

// The statistics of a tensor of `dtype` from its pieces' rows on the host; piece_elements has the elements of each.
// repeats: as CombinePieces has it.
stats::Statistics CombineRows(const std::byte* rows, std::span<const int64_t> piece_elements, stats::DType dtype,
                              int64_t repeats);

}  // namespace msprobe::capture
