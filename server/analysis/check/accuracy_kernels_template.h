// The loops of AccuracyKernels over one SIMD level. Included once by each source of a level, which defines Simd before.

#include <cstring>

#include "server/analysis/check/accuracy_kernels.h"

namespace msprobe::server {
namespace {

using Lanes = Simd::Lanes;
using Mask = Simd::Mask;

// With 32 registers all sums go along in one walk over the block; with 16 they would spill.
constexpr bool kOneWalk = Simd::kLanes == 8;

// How far ahead of it Fuse has memory read, in bytes. Nothing is read behind the last block.
constexpr size_t kAhead = 2048;

constexpr double kCannOffset = 1e-7;
// No number of 32 bits overflows over it times kCannOffset. b may be float64 whatever the dtype is.
constexpr double kLeastDivisor = 1e-250;
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

// least: the smallest |b|, or 0.
MSPROBE_INLINE void SumNormals(const double* b, const double* d, size_t count, double least,
                               const DTypeStandard& standard, BlockSums* sums) {
  // Beside a number over the small limit this epsilon is lost; with all numbers over it, their sums are made already.
  if (standard.relative_epsilon <= 0x1p-52 && least > standard.small_limit) {
    sums->normal = static_cast<double>(count);
    sums->normal_rel = sums->rel;
    sums->normal_max_rel = sums->max_rel;
    sums->normal_squares = sums->squares;
    return;
  }
  Normals normals{b, d, All(standard.small_limit), All(standard.relative_epsilon)};
  Walk(count, normals);
  normals.Finish(sums);
}

// What Subtract and Sums do, in one walk and in registers, for a whole block without zeros.
template <typename A, typename B>
BlockRange Fuse(const char* from_a, const char* from_b, double largest, const DTypeStandard& standard,
                const uint32_t* before, uint32_t* histogram, double* b, double* d, double* ulps, uint32_t* places,
                BlockSums* sums) {
  const Lanes smallest = All(PowerOfTwo(standard.min_exponent));
  const Lanes offset = All(kCannOffset);
  const int mantissa_bits = standard.mantissa_bits;
  Lanes abs = All(0), squares = All(0), max_abs = All(0), dot = All(0), a_squares = All(0), b_squares = All(0),
        b_max = All(0), rel = All(0), rel_squares = All(0), max_rel = All(0), cann = All(0), cann_max = All(0),
        ulp = All(0), ulp_max = All(0), least = All(kLargestDouble);
  for (size_t i = 0; i < kAccuracyBlock; i += Simd::kLanes) {
    const char* const at_a = from_a + i * A::kSize;
    const char* const at_b = from_b + i * B::kSize;
    __builtin_prefetch(at_a + kAhead);
    __builtin_prefetch(at_b + kAhead);
    if (before != nullptr) {
      for (size_t k = 0; k < Simd::kLanes; ++k) ++histogram[before[i + k]];
    }
    Lanes x, y, e, size, steps;
    A::Load(at_a, &x);
    B::Load(at_b, &y);
    const Lanes difference = x - y;
    Simd::Store(y, b + i);
    Simd::Store(difference, d + i);
    Simd::Places(difference, places + i);
    Simd::AddProduct(x, y, &dot);
    Simd::AddProduct(x, x, &a_squares);
    Simd::AddProduct(y, y, &b_squares);
    Simd::AddProduct(difference, difference, &squares);
    Simd::Absolute(difference, &e);
    Simd::Absolute(y, &size);
    abs += e;
    Simd::KeepLargest(e, &max_abs);
    Simd::KeepLargest(size, &b_max);
    Simd::KeepSmallest(size, &least);
    const Lanes shifted = size + offset;
    const Lanes both = e / (size * shifted);
    const Lanes r = both * shifted;
    const Lanes c = both * size;
    rel += r;
    Simd::AddProduct(r, r, &rel_squares);
    Simd::KeepLargest(r, &max_rel);
    cann += c;
    Simd::KeepLargest(c, &cann_max);
    Simd::KeepLargest(smallest, &size);
    Simd::InverseUlp(size, mantissa_bits, &steps);
    steps *= difference;
    Simd::Store(steps, ulps + i);
    Simd::Absolute(steps, &steps);
    ulp += steps;
    Simd::KeepLargest(steps, &ulp_max);
  }
  sums->abs = Simd::Total(abs);
  sums->squares = Simd::Total(squares);
  sums->max_abs = Simd::Top(max_abs);
  sums->dot = Simd::Total(dot);
  sums->target_squares = Simd::Total(a_squares);
  sums->golden_squares = Simd::Total(b_squares);
  sums->golden_max = Simd::Top(b_max);
  sums->rel = Simd::Total(rel);
  sums->rel_squares = Simd::Total(rel_squares);
  sums->max_rel = Simd::Top(max_rel);
  sums->nonzero = kAccuracyBlock;
  sums->cann = Simd::Total(cann);
  sums->cann_max = Simd::Top(cann_max);
  sums->ulp = Simd::Total(ulp);
  sums->ulp_max = Simd::Top(ulp_max);
  // A difference that is not finite makes their sum so.
  const double smallest_b = Simd::Least(least);
  const BlockRange range{sums->abs <= kLargestDouble && sums->golden_max <= largest, smallest_b};
  if (range.finite && smallest_b >= AccuracyKernels::kLeastFused)
    SumNormals(b, d, kAccuracyBlock, smallest_b, standard, sums);
  return range;
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
  SumNormals(b, d, count, least, *standard, sums);
}

// A limit that no element reaches needs no count. Quotients and products are rounded otherwise: a little under it.
MSPROBE_INLINE bool RuledOut(double largest, double limit) { return largest <= limit * (1 - 1e-12); }

constexpr double kUnder[4] = {1e-2, 5e-3, 1e-3, 1e-4};  // BlockCounts::under

// Elements with e under each of the limits from kFirst on, in times of |b|, or 0.
template <size_t kFirst>
MSPROBE_INLINE void CountUnder(const double* b, const double* d, size_t count, BlockCounts* counts) {
  typename Simd::Counter under[4] = {};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes e, size;
    Simd::Load(b + i, &size);
    Simd::Load(d + i, &e);
    Simd::Absolute(size, &size);
    Simd::Absolute(e, &e);
    Mask same;
    Simd::Same(e, All(0), &same);
    for (size_t k = kFirst; k < 4; ++k) {
      Mask is_under;
      Simd::Above(All(kUnder[k]) * size, e, &is_under);
      under[k].Add(is_under | same);
    }
  }
  for (size_t k = kFirst; k < 4; ++k) counts->under[k] = under[k].Finish();
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

// Elements off by just `limit`, half an ULP. Under a power of two the neighbour is no more away, and no rounding of it.
MSPROBE_INLINE void CountTies(const double* b, const double* off, size_t count, double limit, BlockCounts* counts) {
  const Lanes zero = All(0);
  typename Simd::Counter higher = {}, lower = {};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes u, size, y;
    Simd::Load(off + i, &u);
    Simd::Load(b + i, &y);
    Simd::Absolute(u, &size);
    Mask at_limit, power, inward, up;
    Simd::Same(size, All(limit), &at_limit);
    Simd::IsPowerOfTwo(y, &power);
    Simd::Above(zero, u * y, &inward);
    Simd::Above(u, zero, &up);
    inward = inward & power & at_limit;
    higher.Add(inward & up);
    lower.Add(inward & ~up);
  }
  counts->higher += higher.Finish();
  counts->lower += lower.Finish();
}

// Elements off by more than `limit` to each side, and in size by more than 1.
MSPROBE_INLINE void CountSides(const double* b, const double* off, size_t count, double limit, BlockCounts* counts) {
  const Lanes up = All(limit), down = All(-limit), one = All(1);
  typename Simd::Counter higher = {}, lower = {}, over_one = {};
  Mask any_at_limit{};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes u, size;
    Simd::Load(off + i, &u);
    Simd::Absolute(u, &size);
    Mask above, below, over, at_limit;
    Simd::Above(u, up, &above);
    Simd::Above(down, u, &below);
    Simd::Above(size, one, &over);
    Simd::Same(size, up, &at_limit);
    higher.Add(above);
    lower.Add(below);
    over_one.Add(over);
    any_at_limit = any_at_limit | at_limit;
  }
  counts->higher = higher.Finish();
  counts->lower = lower.Finish();
  counts->over_one = over_one.Finish();
  if (limit != 0 && Simd::Any(any_at_limit)) CountTies(b, off, count, limit, counts);
}

// Elements for which over(e, |b|) holds.
template <typename Over>
MSPROBE_INLINE uint64_t CountWhere(const double* b, const double* d, size_t count, Over over) {
  typename Simd::Counter counter = {};
  for (size_t i = 0; i < count; i += Simd::kLanes) {
    Lanes e, size;
    Simd::Load(b + i, &size);
    Simd::Load(d + i, &e);
    Simd::Absolute(size, &size);
    Simd::Absolute(e, &e);
    Mask is_over;
    over(e, size, &is_over);
    counter.Add(is_over);
  }
  return counter.Finish();
}

MSPROBE_INLINE void CountLimits(const double* b, const double* d, size_t count, const DTypeStandard& standard,
                                const BlockSums& sums, BlockCounts* counts) {
  const Lanes one = All(1);
  const Lanes epsilon = All(standard.relative_epsilon);
  const Lanes small_limit = All(standard.small_limit);
  if (!RuledOut(sums.normal_max_rel, standard.relative_limit)) {
    const Lanes limit = All(standard.relative_limit);
    counts->normal_over = CountWhere(
        b, d, count, [&](const Lanes& e, const Lanes& size, Mask* over) __attribute__((always_inline)) {
          Mask normal;
          Simd::Above(size, small_limit, &normal);
          Simd::Above(e, limit * (size + epsilon), over);
          *over = normal & *over;
        });
  }
  if (sums.normal < static_cast<double>(count)) {
    const auto small_over = [&](double limit) -> uint64_t {
      if (sums.max_abs <= limit) return 0;
      return CountWhere(
          b, d, count, [&](const Lanes& e, const Lanes& size, Mask* over) __attribute__((always_inline)) {
            Mask normal;
            Simd::Above(size, small_limit, &normal);
            Simd::Above(e, All(limit), over);
            *over = *over & ~normal;
          });
    };
    counts->small_over_threshold = small_over(standard.threshold_small_error);
    counts->small_over_benchmark = small_over(standard.benchmark_small_error);
  }
  if (!RuledOut(sums.max_abs, standard.accumulative_bound)) {  // the unit is 1 at least
    const Lanes limit = All(standard.accumulative_bound);
    counts->over_accumulative = CountWhere(
        b, d, count, [&](const Lanes& e, const Lanes& size, Mask* over) __attribute__((always_inline)) {
          Lanes unit;
          Mask large;
          Simd::Above(size, one, &large);
          Simd::Choose(large, size + epsilon, one, &unit);
          Simd::Above(e, limit * unit, over);
        });
  }
  const bool within_relative =
      RuledOut(sums.max_rel, standard.torch.relative) && sums.max_at_zero <= standard.torch.absolute;
  if (!within_relative && !RuledOut(sums.max_abs, standard.torch.absolute)) {
    const Lanes absolute = All(standard.torch.absolute), relative = All(standard.torch.relative);
    counts->over_torch = CountWhere(
        b, d, count, [&](const Lanes& e, const Lanes& size, Mask* over) __attribute__((always_inline)) {
          Simd::Above(e, absolute + relative * size, over);
        });
  }
}

void Count(const double* b, const double* d, const double* ulps, size_t count, const DTypeStandard* standard,
           const BlockSums& sums, BlockCounts* counts) {
  size_t first = 0;
  while (first < 4 && sums.max_at_zero == 0 && RuledOut(sums.max_rel, kUnder[first])) counts->under[first++] = count;
  switch (first) {
    case 0:
      CountUnder<0>(b, d, count, counts);
      break;
    case 1:
      CountUnder<1>(b, d, count, counts);
      break;
    case 2:
      CountUnder<2>(b, d, count, counts);
      break;
    case 3:
      CountUnder<3>(b, d, count, counts);
      break;
    default:
      break;
  }
  if (standard == nullptr) {
    CountSides(b, d, count, 0, counts);
    counts->over_one = 0;
    return;
  }
  if (sums.ulp_max >= 0.5) CountSides(b, ulps, count, 0.5, counts);
  if (sums.ulp_max > standard->ulp_count_limit) counts->over_limit = CountOver(ulps, count, standard->ulp_count_limit);
  CountLimits(b, d, count, *standard, sums, counts);
}

void Place(const double* d, size_t count, uint32_t* places) {
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits;
    std::memcpy(&bits, d + i, sizeof(bits));
    const auto bucket = static_cast<uint32_t>((bits & INT64_MAX) >> (52 - kAccuracyBucketBits));
    places[i] = static_cast<uint32_t>(kAccuracyPlaces * bucket + i % kAccuracyPlaces);
  }
}

template <typename A, typename B>
constexpr AccuracyKernels::Fuse* Fused() {
  if constexpr (kOneWalk) {
    return Fuse<A, B>;
  } else {
    return nullptr;
  }
}

constexpr AccuracyKernels MakeAccuracyKernels(const char* name) {
  return {name,
          {{Subtract<Float64, Float64>, Subtract<Float64, Float32>, Subtract<Float64, Bfloat16>},
           {Subtract<Float32, Float64>, Subtract<Float32, Float32>, Subtract<Float32, Bfloat16>},
           {Subtract<Bfloat16, Float64>, Subtract<Bfloat16, Float32>, Subtract<Bfloat16, Bfloat16>}},
          {{Fused<Float64, Float64>(), Fused<Float64, Float32>(), Fused<Float64, Bfloat16>()},
           {Fused<Float32, Float64>(), Fused<Float32, Float32>(), Fused<Float32, Bfloat16>()},
           {Fused<Bfloat16, Float64>(), Fused<Bfloat16, Float32>(), Fused<Bfloat16, Bfloat16>()}},
          Sum,
          Count,
          Place};
}

}  // namespace
}  // namespace msprobe::server
