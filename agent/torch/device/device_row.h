#pragma once

#include <cstdint>
#include <span>

#include "agent/stats/statistics.h"

namespace msprobe::capture {

// The findings of a device in one piece of a tensor, as they lie in a slab. Everything is a 32-bit float, the type in
// which every accelerator reduces; only the extremes of 32- and 64-bit integers are not, as floats cannot hold them.
//
// The sums do not overflow, whatever finite values a piece has. Elements are divided before they are added, by the
// power of two of the largest absolute value among them, so that nothing is rounded. NaN and infinite elements count as
// 0.
struct DeviceRow {
  float max = 0;  // of the finite elements; meaningless when there is none
  float min = 0;
  float scale = 0;      // the largest absolute value of the finite elements, at least the smallest normal float
  float sum = 0;        // of element / scale
  float variance = 0;   // of element / scale, population
  float nan_count = 0;  // exact: a piece has at most 2^20 elements
  float positive_inf_count = 0;
  float negative_inf_count = 0;
  float zero_count = 0;
  float sum_rest = 0;  // what rounding took from sum, where a device knows it. Pieces of one large mean need it
  int64_t integer_max = 0;
  int64_t integer_min = 0;
};
static_assert(sizeof(DeviceRow) == 56);

enum class DeviceRowKind : uint8_t {
  kFloating,
  kNarrowInteger,  // bool and integers that floats hold: their extremes are in max and min
  kWideInteger,    // their extremes are in integer_max and integer_min
};

// The kind of a type that devices reduce (ReducesOnDevice).
DeviceRowKind RowKindOf(stats::DType dtype);

struct DevicePiece {
  DeviceRow row;
  int64_t elements = 0;
};

// The statistics of a tensor from its pieces. Each element that was read stands for `repeats` elements of the tensor,
// as expanded dimensions are read once. Summed in doubles: mean, norm and variance have the relative error of float
// sums over one piece.
stats::Statistics CombinePieces(std::span<const DevicePiece> pieces, DeviceRowKind kind, bool is_bool, int64_t repeats);

}  // namespace msprobe::capture
