// The loops of AccuracyKernels over one SIMD level. Included once by each source of a level, which defines Simd before.

#include <cstring>

#include "server/analysis/check/accuracy_kernels.h"

namespace msprobe::server {
namespace {

using Lanes = Simd::Lanes;
using Mask = Simd::Mask;

// With 32 registers all sums go along in one walk over the block; with 16 they would spill.
constexpr bool kOneWalk = Simd::kLanes == 8;

constexpr double kCannOffset = 1e-7;
// Times kCannOffset it is still a normal number. b may be float64 whatever the dtype is.
constexpr double kLeastDivisor = 1e-300;
constexpr double kLargestDouble = 0x1.fffffffffffffp1023;

MSPROBE_INLINE Lanes All(double x) {
  Lanes lanes;
  Simd::Fill(x, &lanes);
  return lanes;
}

// Of an exponent that double has for normal numbers.
MSPROBE_INLINE double PowerOfTwo(int exponent) {
  const uint64_t bits = static_cast<uint64_t>(1023 + exponent) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

// Each part adds the elements from i on; one walk takes several parts.
template <typename... Parts>
MSPROBE_INLINE void Walk(size_t count, Parts&... parts) {
  for (size_t i = 0; i < count; i += Simd::kLanes) (parts.Add(i), ...);
}

struct Plain {
  const double *a, *b, *d;
  Lanes abs = All(0), squares = All(0), max_abs = All(0), dot = All(0), a_squares = All(0), b_squares = All(0),
        b_max = All(0);

  MSPROBE_INLINE void Add(size_t i) {
    Lanes x, y, e;
    Simd::Load(a + i, &x);
    Simd::Load(b + i, &y);
    Simd::Load(d + i, &e);
    Simd::AddProduct(x, y, &dot);
    Simd::AddProduct(x, x, &a_squares);
    Simd::AddProduct(y, y, &b_squares);
    Simd::AddProduct(e, e, &squares);
    Simd::Absolute(e, &e);
    Simd::Absolute(y, &y);
    abs += e;
    Simd::KeepLargest(e, &max_abs);
    Simd::KeepLargest(y, &b_max);
  }
  MSPROBE_INLINE void Finish(BlockSums* sums) const {
    sums->abs = Simd::Total(abs);
    sums->squares = Simd::Total(squares);
    sums->max_abs = Simd::Top(max_abs);
    sums->dot = Simd::Total(dot);
    sums->target_squares = Simd::Total(a_squares);
    sums->golden_squares = Simd::Total(b_squares);
    sums->golden_max = Simd::Top(b_max);
  }
};

// kOneDivision: the square of a number of the dtype is in the range of double, so that one division serves two
// quotients. kZeros: some b may be 0; without, none is below kLeastDivisor.
template <bool kOneDivision, bool kZeros>
struct Relative {
  const double *b, *d;
  Lanes max_at_zero = All(0), rel = All(0), rel_squares = All(0), max_rel = All(0), nonzero = All(0), cann = All(0),
        cann_max = All(0);

  MSPROBE_INLINE void Add(size_t i) {
    Lanes e, size, divisor, r, c;
    Simd::Load(b + i, &size);
    Simd::Load(d + i, &e);
    Simd::Absolute(e, &e);
    Simd::Absolute(size, &size);
    divisor = size;
    Mask at_all;
    if constexpr (kZeros) {
      Simd::Above(size, All(0), &at_all);
      Simd::Choose(at_all, size, All(1), &divisor);
    }
    const Lanes offset = size + All(kCannOffset);
    if constexpr (kOneDivision) {
      const Lanes both = e / (divisor * offset);
      r = both * offset;
      c = both * divisor;
      if constexpr (kZeros) {
        Mask tiny;
        Simd::Above(All(kLeastDivisor), divisor, &tiny);
        if (Simd::Any(tiny)) {
          r = e / divisor;
          c = e / offset;
        }
      }
    } else {
      r = e / divisor;
      c = e / offset;
    }
    if constexpr (kZeros) {
      Lanes at_zero, counted;
      Simd::Choose(at_all, All(0), e, &at_zero);
      Simd::KeepLargest(at_zero, &max_at_zero);
      Simd::Choose(at_all, r, All(0), &r);
      Simd::Choose(at_all, All(1), All(0), &counted);
      nonzero += counted;
    }
    rel += r;
    Simd::AddProduct(r, r, &rel_squares);
    Simd::KeepLargest(r, &max_rel);
    cann += c;
    Simd::KeepLargest(c, &cann_max);
  }
  MSPROBE_INLINE void Finish(size_t count, BlockSums* sums) const {
    sums->max_at_zero = Simd::Top(max_at_zero);
    sums->rel = Simd::Total(rel);
    sums->rel_squares = Simd::Total(rel_squares);
    sums->max_rel = Simd::Top(max_rel);
    sums->nonzero = kZeros ? Simd::Total(nonzero) : static_cast<double>(count);
    sums->cann = Simd::Total(cann);
    sums->cann_max = Simd::Top(cann_max);
  }
};

struct Ulps {
  Ulps(const DTypeStandard& standard, const double* golden, const double* difference, double* to)
      : b(golden), d(difference), ulps(to) {
    Simd::Fill(PowerOfTwo(standard.mantissa_bits), &mantissa);
    Simd::Fill(PowerOfTwo(standard.min_exponent), &smallest);
  }

  const double *b, *d;
  double* ulps;
  Lanes mantissa, smallest;
  Lanes ulp = All(0), ulp_max = All(0);

  MSPROBE_INLINE void Add(size_t i) {
    Lanes size, difference, inverse;
    Simd::Load(b + i, &size);
    Simd::Load(d + i, &difference);
    Simd::Absolute(size, &size);
    Simd::KeepLargest(smallest, &size);
    Simd::InverseExponent(size, &inverse);
    Lanes steps = difference * inverse * mantissa;
    Simd::Store(steps, ulps + i);
    Simd::Absolute(steps, &steps);
    ulp += steps;
    Simd::KeepLargest(steps, &ulp_max);
  }
  MSPROBE_INLINE void Finish(BlockSums* sums) const {
    sums->ulp = Simd::Total(ulp);
    sums->ulp_max = Simd::Top(ulp_max);
  }
};

// Errors of the elements over the small limit.
struct Normals {
  const double *b, *d;
  Lanes small_limit, epsilon;
  Lanes normal = All(0), rel = All(0), max_rel = All(0), squares = All(0);

  MSPROBE_INLINE void Add(size_t i) {
    const Lanes zero = All(0);
    Lanes e, size, counted, r, square;
    Simd::Load(b + i, &size);
    Simd::Load(d + i, &e);
    Simd::Absolute(e, &e);
    Simd::Absolute(size, &size);
    Mask is_normal;
    Simd::Above(size, small_limit, &is_normal);
    Simd::Choose(is_normal, e / (size + epsilon), zero, &r);
    Simd::Choose(is_normal, All(1), zero, &counted);
    Simd::Choose(is_normal, e * e, zero, &square);
    normal += counted;
    rel += r;
    Simd::KeepLargest(r, &max_rel);
    squares += square;
  }
  MSPROBE_INLINE void Finish(BlockSums* sums) const {
    sums->normal = Simd::Total(normal);
    sums->normal_rel = Simd::Total(rel);
    sums->normal_max_rel = Simd::Top(max_rel);
    sums->normal_squares = Simd::Total(squares);
  }
};

struct Float64 {
  static constexpr size_t kSize = 8;
  static MSPROBE_INLINE void Load(const char* from, Lanes* to) { std::memcpy(to, from, sizeof(Lanes)); }
};
struct Float32 {
  static constexpr size_t kSize = 4;
  static MSPROBE_INLINE void Load(const char* from, Lanes* to) { Simd::LoadFloat32(from, to); }
};
struct Bfloat16 {
  static constexpr size_t kSize = 2;
  static MSPROBE_INLINE void Load(const char* from, Lanes* to) { Simd::LoadBfloat16(from, to); }
};

template <typename A, typename B>
BlockRange Subtract(const char* from_a, const char* from_b, size_t count, double largest, double* a, double* b,
                    double* d) {
  const Lanes zero = All(0);
  Lanes top = zero, nothing = zero, least = All(kLargestDouble);
  const auto add = [&](const char* at_a, const char* at_b, size_t i) __attribute__((always_inline)) {
    Lanes x, y;
    A::Load(at_a, &x);
    B::Load(at_b, &y);
    const Lanes difference = x - y;
    Simd::Store(x, a + i);
    Simd::Store(y, b + i);
    Simd::Store(difference, d + i);
    Simd::AddProduct(difference, zero, &nothing);  // NaN once a difference is not finite
    Simd::Absolute(y, &y);
    Simd::KeepLargest(y, &top);
    Simd::KeepSmallest(y, &least);
  };
  const size_t whole = count / Simd::kLanes * Simd::kLanes;
  for (size_t i = 0; i < whole; i += Simd::kLanes) add(from_a + i * A::kSize, from_b + i * B::kSize, i);
  char rest_a[kAccuracyLanes * A::kSize] = {};
  char rest_b[kAccuracyLanes * B::kSize] = {};
  std::memcpy(rest_a, from_a + whole * A::kSize, (count - whole) * A::kSize);
  std::memcpy(rest_b, from_b + whole * B::kSize, (count - whole) * B::kSize);
  const size_t padded = (count + kAccuracyLanes - 1) / kAccuracyLanes * kAccuracyLanes;
  for (size_t i = whole; i < padded; i += Simd::kLanes) {
    add(rest_a + (i - whole) * A::kSize, rest_b + (i - whole) * B::kSize, i);
  }
  return {Simd::Total(nothing) == 0 && Simd::Top(top) <= largest, Simd::Least(least)};
}

template <bool kOneDivision, bool kZeros>
MSPROBE_INLINE void Sums(const double* a, const double* b, const double* d, size_t count, const DTypeStandard* standard,
                         double* ulps, BlockSums* sums) {
  Plain plain{a, b, d};
  Relative<kOneDivision, kZeros> relative{b, d};
  if (kOneWalk && standard != nullptr) {
    Ulps steps(*standard, b, d, ulps);
    Walk(count, plain, relative, steps);
    steps.Finish(sums);
  } else {
    Walk(count, plain);
    Walk(count, relative);
  }
  plain.Finish(sums);
  relative.Finish(count, sums);
}

void Sum(const double* a, const double* b, const double* d, size_t count, double least, const DTypeStandard* standard,
         double* ulps, BlockSums* sums) {
  const bool one_division =
      standard != nullptr && standard->mantissa_bits < 52 && (least == 0 || least >= kLeastDivisor);
  if (least > 0) {
    one_division ? Sums<true, false>(a, b, d, count, standard, ulps, sums)
                 : Sums<false, false>(a, b, d, count, standard, ulps, sums);
  } else {
    one_division ? Sums<true, true>(a, b, d, count, standard, ulps, sums)
                 : Sums<false, true>(a, b, d, count, standard, ulps, sums);
  }
  if (standard == nullptr) {
    for (size_t i = 0; i < count; ++i) ulps[i] = 0;
    return;
  }
  if (!kOneWalk && sums->max_abs != 0) {
    Ulps steps(*standard, b, d, ulps);
    Walk(count, steps);
    steps.Finish(sums);
  }
  // Beside a number over the small limit this epsilon is lost; with all numbers over it, their sums are made already.
  if (standard->relative_epsilon <= 0x1p-52 && least > standard->small_limit) {
    sums->normal = static_cast<double>(count);
    sums->normal_rel = sums->rel;
    sums->normal_max_rel = sums->max_rel;
    sums->normal_squares = sums->squares;
    return;
  }
  Normals normals{b, d, All(standard->small_limit), All(standard->relative_epsilon)};
  Walk(count, normals);
  normals.Finish(sums);
}

MSPROBE_INLINE void CountUnder(const double* b, const double* d, size_t count, BlockCounts* counts) {
  typename Simd::Counter under[4] = {};
  const double limits[4] = {1e-2, 5e-3, 1e-3, 1e-4};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes e, size;
    Simd::Load(b + i, &size);
    Simd::Load(d + i, &e);
    Simd::Absolute(size, &size);
    Simd::Absolute(e, &e);
    Mask same;
    Simd::Same(e, All(0), &same);
    for (int k = 0; k < 4; ++k) {
      Mask is_under;
      Simd::Above(All(limits[k]) * size, e, &is_under);
      under[k].Add(is_under | same);
    }
  }
  for (int k = 0; k < 4; ++k) counts->under[k] = under[k].Finish();
}

// Of `values`, those over the limit in size.
MSPROBE_INLINE uint64_t CountOver(const double* values, size_t count, double limit) {
  typename Simd::Counter over = {};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes x;
    Simd::Load(values + i, &x);
    Simd::Absolute(x, &x);
    Mask is_over;
    Simd::Above(x, All(limit), &is_over);
    over.Add(is_over);
  }
  return over.Finish();
}

// Elements off by more than `limit` to each side. Under a power of two the neighbour is half an ULP away, and no
// rounding of it.
MSPROBE_INLINE void CountSides(const double* b, const double* off, size_t count, double limit, BlockCounts* counts) {
  const Lanes zero = All(0);
  typename Simd::Counter higher = {}, lower = {};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes u, size, y;
    Simd::Load(off + i, &u);
    Simd::Absolute(u, &size);
    Mask above, below, at_limit;
    Simd::Above(u, All(limit), &above);
    Simd::Above(All(-limit), u, &below);
    Simd::Same(size, All(limit), &at_limit);
    if (limit != 0 && Simd::Any(at_limit)) {
      Simd::Load(b + i, &y);
      Mask power, inward, up, down;
      Simd::IsPowerOfTwo(y, &power);
      Simd::Above(zero, u * y, &inward);
      Simd::Above(u, zero, &up);
      Simd::Above(zero, u, &down);
      above |= at_limit & power & inward & up;
      below |= at_limit & power & inward & down;
    }
    higher.Add(above);
    lower.Add(below);
  }
  counts->higher = higher.Finish();
  counts->lower = lower.Finish();
}

MSPROBE_INLINE void CountLimits(const double* b, const double* d, size_t count, const DTypeStandard& standard,
                                BlockCounts* counts) {
  const Lanes one = All(1);
  const Lanes epsilon = All(standard.relative_epsilon);
  typename Simd::Counter normal_over = {}, threshold = {}, benchmark = {}, accumulative = {}, torch = {};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes e, size, unit;
    Simd::Load(b + i, &size);
    Simd::Load(d + i, &e);
    Simd::Absolute(size, &size);
    Simd::Absolute(e, &e);
    Mask normal, over, small, large;
    Simd::Above(size, All(standard.small_limit), &normal);
    Simd::Above(e, All(standard.relative_limit) * (size + epsilon), &over);
    normal_over.Add(normal & over);
    Simd::Above(e, All(standard.threshold_small_error), &small);
    threshold.Add(small & ~normal);
    Simd::Above(e, All(standard.benchmark_small_error), &small);
    benchmark.Add(small & ~normal);
    Simd::Above(size, one, &large);
    Simd::Choose(large, size + epsilon, one, &unit);
    Simd::Above(e, All(standard.accumulative_bound) * unit, &over);
    accumulative.Add(over);
    Simd::Above(e, All(standard.torch.absolute) + All(standard.torch.relative) * size, &over);
    torch.Add(over);
  }
  counts->normal_over = normal_over.Finish();
  counts->small_over_threshold = threshold.Finish();
  counts->small_over_benchmark = benchmark.Finish();
  counts->over_accumulative = accumulative.Finish();
  counts->over_torch = torch.Finish();
}

double Smaller(double x, double y) { return x < y ? x : y; }

void Count(const double* b, const double* d, const double* ulps, size_t count, const DTypeStandard* standard,
           const BlockSums& sums, BlockCounts* counts) {
  if (sums.max_rel < 1e-4 && sums.max_at_zero == 0) {
    for (uint64_t& under : counts->under) under = count;
  } else {
    CountUnder(b, d, count, counts);
  }
  if (standard == nullptr) {
    CountSides(b, d, count, 0, counts);
    return;
  }
  if (sums.ulp_max >= 0.5) CountSides(b, ulps, count, 0.5, counts);
  if (sums.ulp_max > 1) counts->over_one = CountOver(ulps, count, 1);
  if (sums.ulp_max > standard->ulp_count_limit) counts->over_limit = CountOver(ulps, count, standard->ulp_count_limit);
  const bool some_small = sums.normal < static_cast<double>(count);
  const bool small_over =
      some_small && sums.max_abs > Smaller(standard->threshold_small_error, standard->benchmark_small_error);
  if (sums.normal_max_rel <= standard->relative_limit && !small_over &&
      sums.max_abs <= Smaller(standard->accumulative_bound, standard->torch.absolute)) {
    return;
  }
  CountLimits(b, d, count, *standard, counts);
}

void Place(const double* d, size_t count, uint16_t* buckets) {
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits;
    std::memcpy(&bits, d + i, sizeof(bits));
    buckets[i] = static_cast<uint16_t>((bits & INT64_MAX) >> (52 - kAccuracyBucketBits));
  }
}

constexpr AccuracyKernels MakeAccuracyKernels(const char* name) {
  return {name,
          {{Subtract<Float64, Float64>, Subtract<Float64, Float32>, Subtract<Float64, Bfloat16>},
           {Subtract<Float32, Float64>, Subtract<Float32, Float32>, Subtract<Float32, Bfloat16>},
           {Subtract<Bfloat16, Float64>, Subtract<Bfloat16, Float32>, Subtract<Bfloat16, Bfloat16>}},
          Sum,
          Count,
          Place};
}

}  // namespace
}  // namespace msprobe::server
