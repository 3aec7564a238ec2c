#pragma once

#include <cstddef>
#include <cstdint>

#include "server/analysis/check/dtype_standard.h"

namespace msprobe::server {

// The inner loops of AccuracyComparison, over blocks that fit the first cache.
inline constexpr size_t kAccuracyBlock = 512;  // elements
inline constexpr size_t kAccuracyLanes = 4;    // what the last group lacks is zeros on both sides

// Sums and largest values of one block. e is |a - b|, y is |b|.
struct BlockSums {
  double abs = 0;
  double squares = 0;
  double max_abs = 0;
  double max_at_zero = 0;  // largest e where y == 0
  double rel = 0;          // e / y where y > 0
  double rel_squares = 0;
  double max_rel = 0;
  double nonzero = 0;
  double dot = 0;
  double target_squares = 0;
  double golden_squares = 0;
  double golden_max = 0;
  double cann = 0;  // e / (y + 1e-7)
  double cann_max = 0;
  double normal = 0;  // elements with y > small_limit, and their errors
  double normal_rel = 0;
  double normal_max_rel = 0;
  double normal_squares = 0;
  double ulp = 0;
  double ulp_max = 0;
};

// Elements of one block over a limit.
struct BlockCounts {
  uint64_t higher = 0;  // by more than half an ULP
  uint64_t lower = 0;
  uint64_t over_one = 0;
  uint64_t over_limit = 0;
  uint64_t under[4] = {};  // e under 1e-2, 5e-3, 1e-3, 1e-4 of y, or 0
  uint64_t normal_over = 0;
  uint64_t small_over_threshold = 0;
  uint64_t small_over_benchmark = 0;
  uint64_t over_accumulative = 0;
  uint64_t over_torch = 0;
};

// d = a - b. Gives whether every |b| is at most `largest`, and every a finite. `count` is a multiple of kAccuracyLanes
// here and below.
bool SubtractBlock(const double* a, const double* b, size_t count, double largest, double* d);

// Everything is finite. `ulps` gets d in ULPs; standard is null for integers,
// which have no ULPs and no small values.
BlockSums SumBlock(const double* b, const double* a, const double* d, size_t count, const DTypeStandard* standard,
                   double* ulps);

// Looks only for what the sums do not rule out. `under` counts the zeros that fill up the last group too.
BlockCounts CountBlock(const double* b, const double* d, const double* ulps, size_t count,
                       const DTypeStandard* standard, const BlockSums& sums);

}  // namespace msprobe::server
