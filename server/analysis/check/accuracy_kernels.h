#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/analysis/check/dtype_standard.h"

namespace msprobe::server {

// The inner loops of AccuracyComparison, over blocks that fit the first cache, compiled once for each SIMD level.
// The last digits of sums may differ from one level to another. The types are trivial, because sources compiled for
// different instruction sets share them.
inline constexpr size_t kAccuracyBlock = 512;  // elements
inline constexpr size_t kAccuracyLanes = 8;    // what the last group lacks is zeros on both sides
// Of |d|: a bucket for each exponent and four bits of mantissa.
inline constexpr int kAccuracyBucketBits = 4;
inline constexpr size_t kAccuracyBuckets = size_t{2048} << kAccuracyBucketBits;
// Counters of each bucket: neighbours often fall into one, and an increment waits for the last one of its counter.
inline constexpr size_t kAccuracyPlaces = 8;
// Of the bits of |d|: its bucket times kAccuracyPlaces.
inline constexpr int kPlaceShift = 52 - kAccuracyBucketBits - 3;
inline constexpr int64_t kPlaceMask = kAccuracyPlaces * (kAccuracyBuckets - 1);

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

// Elements that the kernels read as they are. Those of other dtypes come as kFloat64.
enum class AccuracyElement : uint8_t { kFloat64, kFloat32, kBfloat16 };

// What subtract saw.
struct BlockRange {
  bool finite = false;  // every difference is finite, and every |b| at most `largest`
  double least = 0;     // smallest |b|
};

struct AccuracyKernels {
  const char* name;
  // Reads `count` elements of each side, by [AccuracyElement of a][of b]. a, b and d = a - b get them as doubles, and
  // zeros up to the next multiple of kAccuracyLanes. from_a may be a, from_b may be b.
  BlockRange (*subtract[3][3])(const char* from_a, const char* from_b, size_t count, double largest, double* a,
                               double* b, double* d);

  // subtract and sum in one walk over a whole block, without `a`, for a dtype of at most 32 bits. The sums hold if the
  // range is finite and its least number kLeastFused at least; else subtract and sum do the block again. Null: the
  // level has too few registers.
  // places gets what `place` gives. Meanwhile the places of the block before count in `histogram`: the divisions leave
  // time for that, and these addresses are known early. Null `before`: nothing counts.
  using Fuse = BlockRange(const char* from_a, const char* from_b, double largest, const DTypeStandard& standard,
                          const uint32_t* before, uint32_t* histogram, double* b, double* d, double* ulps,
                          uint32_t* places, BlockSums* sums);
  static constexpr double kLeastFused = 1e-60;  // no quotient of numbers of 32 bits overflows
  Fuse* fuse[3][3];

  // From here on `count` is a multiple of kAccuracyLanes, and everything is finite. `standard` is null for integers,
  // which have no ULPs and no small values.

  // `ulps` gets d in ULPs. least: of BlockRange, or 0.
  void (*sum)(const double* a, const double* b, const double* d, size_t count, double least,
              const DTypeStandard* standard, double* ulps, BlockSums* sums);
  // Looks only for what the sums do not rule out. `under` counts the zeros that fill up the last group too.
  void (*count)(const double* b, const double* d, const double* ulps, size_t count, const DTypeStandard* standard,
                const BlockSums& sums, BlockCounts* counts);
  // A counter of the bucket of each |d|: kAccuracyPlaces times the bucket, and which of these.
  void (*place)(const double* d, size_t count, uint32_t* places);
};

extern const AccuracyKernels kPortableAccuracy;
#if defined(__x86_64__)
extern const AccuracyKernels kAvx2Accuracy;
extern const AccuracyKernels kAvx512Accuracy;
#endif

// The kernels that this machine can run, the best last.
std::span<const AccuracyKernels* const> SupportedAccuracyKernels();
const AccuracyKernels& BestAccuracyKernels();

}  // namespace msprobe::server
