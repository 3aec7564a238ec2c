#pragma once

#include <cstdint>
#include <span>

#include "agent/stats/statistics.h"

namespace msprobe::capture {

// What a device finds in one piece of a tensor, as it lies in a slab. Everything is a 32-bit float, since that is what
// every accelerator reduces in, but for the extremes of 32- and 64-bit integers, which floats cannot hold.
//
// The sums do not overflow, whatever finite values a piece has: they are of elements divided by a power of two, that of
// the largest absolute value among them, so that nothing is rounded. NaN and infinite elements count as 0 in them.
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
  float sum_rest = 0;  // what sum lacks, where a device knows it: else pieces of one large mean seem to differ in it
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

// The statistics of a tensor from its pieces, which together have each element `repeats` times in truth (expanded
// dimensions are read once). Summed in doubles: relative errors of mean, norm and variance are those of float sums
// over one piece.
stats::Statistics CombinePieces(std::span<const DevicePiece> pieces, DeviceRowKind kind, bool is_bool, int64_t repeats);

}  // namespace msprobe::capture
