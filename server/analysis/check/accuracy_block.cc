#include "server/analysis/check/accuracy_block.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

// A sanitizer's runtime is not ready when the loader chooses a clone.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MSPROBE_WIDE_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define MSPROBE_WIDE_CLONES
#endif

namespace msprobe::server {
namespace {

typedef double Lanes __attribute__((vector_size(kAccuracyLanes * 8)));
typedef int64_t Bits __attribute__((vector_size(kAccuracyLanes * 8)));

constexpr double kCannOffset = 1e-7;
constexpr double kPerCannOffset = 1 / kCannOffset;

// Lanes never cross a call: these are inlined.
#define MSPROBE_INLINE inline __attribute__((always_inline))

MSPROBE_INLINE void Load(const double* from, Lanes* to) { std::memcpy(to, from, sizeof(Lanes)); }
MSPROBE_INLINE void Absolute(const Lanes& x, Lanes* to) {
  const Bits bits = reinterpret_cast<Bits>(x) & INT64_MAX;
  *to = reinterpret_cast<Lanes>(bits);
}
MSPROBE_INLINE void Largest(const Lanes& x, Lanes* so_far) { *so_far = x > *so_far ? x : *so_far; }
MSPROBE_INLINE double Total(const Lanes& x) { return (x[0] + x[2]) + (x[1] + x[3]); }
MSPROBE_INLINE double Top(const Lanes& x) { return std::max(std::max(x[0], x[2]), std::max(x[1], x[3])); }
MSPROBE_INLINE uint64_t Count(const Bits& all_ones) {
  return static_cast<uint64_t>(-(all_ones[0] + all_ones[1] + all_ones[2] + all_ones[3]));
}

MSPROBE_INLINE double SmallestOf(const double* b, size_t count) {
  Lanes least = Lanes{} + std::numeric_limits<double>::max();
  for (size_t i = 0; i < count; i += kAccuracyLanes) {
    Lanes size;
    Load(b + i, &size);
    Absolute(size, &size);
    least = size < least ? size : least;
  }
  return std::min(std::min(least[0], least[2]), std::min(least[1], least[3]));
}

}  // namespace

MSPROBE_WIDE_CLONES
bool SubtractBlock(const double* a, const double* b, size_t count, double largest, double* d) {
  const Lanes zero = {};
  const Lanes most_a = zero + std::numeric_limits<double>::max();
  const Lanes most_b = zero + largest;
  Bits finite = ~Bits{};
  for (size_t i = 0; i < count; i += kAccuracyLanes) {
    Lanes x, y;
    Load(a + i, &x);
    Load(b + i, &y);
    const Lanes difference = x - y;
    std::memcpy(d + i, &difference, sizeof(difference));
    Absolute(x, &x);
    Absolute(y, &y);
    finite &= (x <= most_a) & (y <= most_b);
  }
  return (finite[0] & finite[1] & finite[2] & finite[3]) != 0;
}

MSPROBE_WIDE_CLONES
BlockSums SumBlock(const double* b, const double* a, const double* d, size_t count, const DTypeStandard* standard,
                   double* ulps) {
  const Lanes zero = {};
  const Lanes one = zero + 1;
  // The square of a number of these dtypes is in the range of double: one division serves two quotients.
  const bool squares_fit = standard != nullptr && standard->mantissa_bits < 52;
  // Two loops, each with as many sums as there are registers.
  Lanes abs{}, squares{}, max_abs{}, dot{}, a_squares{}, b_squares{}, b_max{};
  for (size_t i = 0; i < count; i += kAccuracyLanes) {
    Lanes x, y, e;
    Load(a + i, &x);
    Load(b + i, &y);
    Load(d + i, &e);
    dot += x * y;
    a_squares += x * x;
    b_squares += y * y;
    squares += e * e;
    Absolute(e, &e);
    Absolute(y, &y);
    abs += e;
    Largest(e, &max_abs);
    Largest(y, &b_max);
  }
  Lanes max_at_zero{}, rel{}, rel_squares{}, max_rel{}, nonzero{}, cann{}, cann_max{};
  for (size_t i = 0; i < count; i += kAccuracyLanes) {
    Lanes e, size;
    Load(b + i, &size);
    Load(d + i, &e);
    Absolute(e, &e);
    Absolute(size, &size);
    const Bits at_all = size > zero;
    const Lanes divisor = at_all ? size : one;
    const Lanes offset = size + kCannOffset;
    Lanes r, c;
    if (squares_fit) {
      const Lanes both = e / (divisor * offset);
      r = both * offset;
      c = both * divisor;
    } else {
      r = e / divisor;
      c = e / offset;
    }
    c = at_all ? c : e * kPerCannOffset;
    Largest(at_all ? zero : e, &max_at_zero);
    r = at_all ? r : zero;
    rel += r;
    rel_squares += r * r;
    Largest(r, &max_rel);
    nonzero += at_all ? one : zero;
    cann += c;
    Largest(c, &cann_max);
  }
  BlockSums sums;
  sums.abs = Total(abs);
  sums.squares = Total(squares);
  sums.max_abs = Top(max_abs);
  sums.max_at_zero = Top(max_at_zero);
  sums.rel = Total(rel);
  sums.rel_squares = Total(rel_squares);
  sums.max_rel = Top(max_rel);
  sums.nonzero = Total(nonzero);
  sums.dot = Total(dot);
  sums.target_squares = Total(a_squares);
  sums.golden_squares = Total(b_squares);
  sums.golden_max = Top(b_max);
  sums.cann = Total(cann);
  sums.cann_max = Top(cann_max);
  if (standard == nullptr || sums.max_abs == 0) {
    if (standard != nullptr) {
      for (size_t i = 0; i < count; ++i) sums.normal += std::fabs(b[i]) > standard->small_limit;
    }
    std::fill(ulps, ulps + count, 0.0);
    return sums;
  }

  Lanes normal{}, normal_rel{}, normal_max{}, normal_squares{}, ulp{}, ulp_max{};
  const Lanes smallest = zero + std::ldexp(1.0, standard->min_exponent);
  const Lanes mantissa = zero + std::ldexp(1.0, standard->mantissa_bits);
  const Lanes small_limit = zero + standard->small_limit;
  const Lanes epsilon = zero + standard->relative_epsilon;
  // Beside a number over the small limit this epsilon is lost; with all numbers over it, their sums are made already.
  const bool all_normal = standard->relative_epsilon <= 0x1p-52 && SmallestOf(b, count) > standard->small_limit;
  for (size_t i = 0; i < count; i += kAccuracyLanes) {
    Lanes y, difference, size;
    Load(b + i, &y);
    Load(d + i, &difference);
    Absolute(y, &size);
    // 2^-exponent of the golden number: the mantissa drops out, the exponent changes its sign.
    const Lanes at_least = size > smallest ? size : smallest;
    const Bits exponent = reinterpret_cast<Bits>(at_least) & 0x7FF0000000000000;
    const Bits inverse_bits = 0x7FE0000000000000 - exponent;
    const Lanes inverse = reinterpret_cast<Lanes>(inverse_bits);
    const Lanes u = difference * inverse * mantissa;
    std::memcpy(ulps + i, &u, sizeof(u));
    Lanes steps;
    Absolute(u, &steps);
    ulp += steps;
    Largest(steps, &ulp_max);
  }
  sums.ulp = Total(ulp);
  sums.ulp_max = Top(ulp_max);
  if (all_normal) {
    sums.normal = static_cast<double>(count);
    sums.normal_rel = sums.rel;
    sums.normal_max_rel = sums.max_rel;
    sums.normal_squares = sums.squares;
    return sums;
  }
  for (size_t i = 0; i < count; i += kAccuracyLanes) {
    Lanes y, e, size;
    Load(b + i, &y);
    Load(d + i, &e);
    Absolute(e, &e);
    Absolute(y, &size);
    const Bits is_normal = size > small_limit;
    const Lanes r = is_normal ? e / (size + epsilon) : zero;
    normal += is_normal ? one : zero;
    normal_rel += r;
    Largest(r, &normal_max);
    normal_squares += is_normal ? e * e : zero;
  }
  sums.normal = Total(normal);
  sums.normal_rel = Total(normal_rel);
  sums.normal_max_rel = Top(normal_max);
  sums.normal_squares = Total(normal_squares);
  return sums;
}

MSPROBE_WIDE_CLONES
BlockCounts CountBlock(const double* b, const double* d, const double* ulps, size_t count,
                       const DTypeStandard* standard, const BlockSums& sums) {
  BlockCounts counts;
  const Lanes zero = {};
  if (sums.max_rel < 1e-4 && sums.max_at_zero == 0) {
    for (uint64_t& under : counts.under) under = count;
  } else {
    Bits under[4] = {};
    for (size_t i = 0; i < count; i += kAccuracyLanes) {
      Lanes y, e, size;
      Load(b + i, &y);
      Load(d + i, &e);
      Absolute(y, &size);
      Absolute(e, &e);
      const Bits same = e == zero;
      under[0] += (e < 1e-2 * size) | same;
      under[1] += (e < 5e-3 * size) | same;
      under[2] += (e < 1e-3 * size) | same;
      under[3] += (e < 1e-4 * size) | same;
    }
    for (int i = 0; i < 4; ++i) counts.under[i] = Count(under[i]);
  }
  if (standard == nullptr) {
    Bits higher{}, lower{};
    for (size_t i = 0; i < count; i += kAccuracyLanes) {
      Lanes difference;
      Load(d + i, &difference);
      higher += difference > zero;
      lower += difference < zero;
    }
    counts.higher = Count(higher);
    counts.lower = Count(lower);
    return counts;
  }
  if (sums.ulp_max >= 0.5) {
    const Lanes half = zero + 0.5;
    const Lanes limit = zero + standard->ulp_count_limit;
    Bits higher{}, lower{}, one{}, many{};
    for (size_t i = 0; i < count; i += kAccuracyLanes) {
      Lanes y, u, steps;
      Load(b + i, &y);
      Load(ulps + i, &u);
      Absolute(u, &steps);
      // Under a power of two the neighbour is half an ULP away, and no rounding of it.
      const Bits next_below =
          (steps == half) & ((reinterpret_cast<Bits>(y) & 0xFFFFFFFFFFFFF) == Bits{}) & (u * y < zero);
      higher += (u > half) | (next_below & (u > zero));
      lower += (u < -half) | (next_below & (u < zero));
      one += steps > zero + 1;
      many += steps > limit;
    }
    counts.higher = Count(higher);
    counts.lower = Count(lower);
    counts.over_one = Count(one);
    counts.over_limit = Count(many);
  }
  const bool some_small = sums.normal < static_cast<double>(count);
  const bool small_over =
      some_small && sums.max_abs > std::min(standard->threshold_small_error, standard->benchmark_small_error);
  if (sums.normal_max_rel <= standard->relative_limit && !small_over &&
      sums.max_abs <= std::min(standard->accumulative_bound, standard->torch.absolute)) {
    return counts;
  }
  const Lanes epsilon = zero + standard->relative_epsilon;
  const Lanes small_limit = zero + standard->small_limit;
  const Lanes one = zero + 1;
  Bits normal_over{}, threshold{}, benchmark{}, accumulative{}, torch{};
  for (size_t i = 0; i < count; i += kAccuracyLanes) {
    Lanes y, e, size;
    Load(b + i, &y);
    Load(d + i, &e);
    Absolute(y, &size);
    Absolute(e, &e);
    const Bits is_small = size <= small_limit;
    normal_over += ~is_small & (e > standard->relative_limit * (size + epsilon));
    threshold += is_small & (e > zero + standard->threshold_small_error);
    benchmark += is_small & (e > zero + standard->benchmark_small_error);
    accumulative += e > standard->accumulative_bound * (size > one ? size + epsilon : one);
    torch += e > standard->torch.absolute + standard->torch.relative * size;
  }
  counts.normal_over = Count(normal_over);
  counts.small_over_threshold = Count(threshold);
  counts.small_over_benchmark = Count(benchmark);
  counts.over_accumulative = Count(accumulative);
  counts.over_torch = Count(torch);
  return counts;
}

}  // namespace msprobe::server
