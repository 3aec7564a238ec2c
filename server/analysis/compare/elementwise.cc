#include "server/analysis/compare/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "server/analysis/compare/element_load.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr size_t kBlock = 1024;  // elements at a time: two blocks of doubles fit the first cache
constexpr size_t kLanes = 8;
// Of |d|: a bucket for each exponent and four bits of mantissa.
constexpr int kBucketBits = 4;
constexpr size_t kBuckets = size_t{2048} << kBucketBits;

bool IsFinite(double value) { return std::fabs(value) <= std::numeric_limits<double>::max(); }

// Sums of many terms: pairs of sum and what rounding lost (Neumaier).
class Sum {
 public:
  void Add(double term) {
    const double sum = sum_ + term;
    lost_ += std::fabs(sum_) >= std::fabs(term) ? (sum_ - sum) + term : (term - sum) + sum_;
    sum_ = sum;
  }
  double value() const { return IsFinite(sum_) ? sum_ + lost_ : sum_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

struct Lanes {
  double lane[kLanes] = {};
  double total() const {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
  }
  double largest() const { return *std::max_element(lane, lane + kLanes); }
};

template <typename Signed, typename Unsigned>
double UlpSteps(const char* a, const char* b, size_t i) {
  Signed x;
  Signed y;
  std::memcpy(&x, a + i * sizeof(Signed), sizeof(Signed));
  std::memcpy(&y, b + i * sizeof(Signed), sizeof(Signed));
  // Negative numbers count down from zero, so that neighbours differ by one.
  constexpr Signed kLowest = std::numeric_limits<Signed>::min();
  const auto ordered = [](Signed bits) {
    return bits < 0
               ? static_cast<int64_t>(static_cast<Signed>(static_cast<Unsigned>(kLowest) - static_cast<Unsigned>(bits)))
               : static_cast<int64_t>(bits);
  };
  if constexpr (sizeof(Signed) < 8) {
    const int64_t steps = ordered(x) - ordered(y);
    return static_cast<double>(steps < 0 ? -steps : steps);
  } else {
    const __int128 steps = static_cast<__int128>(ordered(x)) - ordered(y);
    return static_cast<double>(steps < 0 ? -steps : steps);
  }
}

}  // namespace

struct ElementwiseComparison::Sums {
  TensorDescription target;
  TensorDescription golden;
  Tolerance tolerance;
  ElementLoad load_target = nullptr;
  ElementLoad load_golden = nullptr;
  size_t target_size = 0;
  size_t golden_size = 0;
  bool same_type = false;
  bool exact_integers = false;
  bool single_precision = false;  // mindstudio-probe's relative error
  int ulp_bytes = 0;
  double ulp_limit = 0;

  ElementwiseMetrics metrics;
  bool any_difference = false;
  Sum abs, squares, rel, rel_squares, dot, target_squares, golden_squares, mindstudio_squares, ulp;
  uint64_t nonzero_golden = 0;
  uint64_t under[4] = {};
  uint64_t zero_errors = 0;
  uint64_t ulp_over = 0;
  double ulp_max = 0;
  std::vector<uint64_t> histogram;

  double a[kBlock];
  double b[kBlock];
  double d[kBlock];

  void AddBlock(const char* from_a, const char* from_b, size_t count);
  void AddEqualBlock(const char* from, size_t count);
  size_t CleanNonFinite(size_t count, uint64_t offset);
  // True: the worst element so far is in it.
  bool Accumulate(size_t count, uint64_t offset);
  void Mindstudio(size_t count);
  void Ulps(const char* from_a, const char* from_b, size_t count);
  template <typename Signed, typename Unsigned>
  void UlpsOf(const char* from_a, const char* from_b, size_t count);
  template <typename Real>
  void MindstudioRelative(size_t count);
};

// Elements that are not finite on both sides become zeros on both, counted. Gives how many are left to compare.
size_t ElementwiseComparison::Sums::CleanNonFinite(size_t count, uint64_t offset) {
  size_t left = count;
  for (size_t i = 0; i < count; ++i) {
    if (IsFinite(a[i]) && IsFinite(b[i])) continue;
    --left;
    const bool nan_a = std::isnan(a[i]);
    const bool nan_b = std::isnan(b[i]);
    const bool inf_a = std::isinf(a[i]);
    const bool inf_b = std::isinf(b[i]);
    if (nan_a != nan_b || inf_a != inf_b) metrics.mindstudio.masks_differ = true;
    bool mismatch = true;
    if (nan_a != nan_b) {
      ++metrics.non_finite.nan;
    } else if (inf_a != inf_b) {
      ++metrics.non_finite.inf;
    } else if (inf_a && a[i] != b[i]) {
      ++metrics.non_finite.inf_sign;
    } else {
      ++metrics.non_finite.same;
      mismatch = false;
    }
    if (mismatch && !metrics.non_finite.first_mismatch) metrics.non_finite.first_mismatch = offset + i;
    a[i] = b[i] = d[i] = 0;
  }
  return left;
}

bool ElementwiseComparison::Sums::Accumulate(size_t count, uint64_t offset) {
  Lanes abs_sum, square_sum, rel_sum, rel_square_sum, dot_sum, a_sum, b_sum, max_abs, max_rel;
  uint64_t counts[5] = {};
  // What the lanes do not fill is zeros on both sides.
  const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (size_t i = count; i < padded; ++i) a[i] = b[i] = d[i] = 0;
  for (size_t i = 0; i < padded; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      const double x = a[i + j];
      const double y = b[i + j];
      const double e = std::fabs(d[i + j]);
      const double golden_size_of = std::fabs(y);
      abs_sum.lane[j] += e;
      square_sum.lane[j] += e * e;
      dot_sum.lane[j] += x * y;
      a_sum.lane[j] += x * x;
      b_sum.lane[j] += y * y;
      max_abs.lane[j] = e > max_abs.lane[j] ? e : max_abs.lane[j];
      const double r = golden_size_of > 0 ? e / golden_size_of : 0.0;
      rel_sum.lane[j] += r;
      rel_square_sum.lane[j] += r * r;
      max_rel.lane[j] = r > max_rel.lane[j] ? r : max_rel.lane[j];
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const double e = std::fabs(d[i]);
    const double y = std::fabs(b[i]);
    counts[0] += e < 1e-2 * y || e == 0;
    counts[1] += e < 5e-3 * y || e == 0;
    counts[2] += e < 1e-3 * y || e == 0;
    counts[3] += e < 1e-4 * y || e == 0;
    counts[4] += y > 0;
  }
  abs.Add(abs_sum.total());
  squares.Add(square_sum.total());
  rel.Add(rel_sum.total());
  rel_squares.Add(rel_square_sum.total());
  dot.Add(dot_sum.total());
  target_squares.Add(a_sum.total());
  golden_squares.Add(b_sum.total());
  for (int i = 0; i < 4; ++i) under[i] += counts[i];
  nonzero_golden += counts[4];
  metrics.relative.max = std::max(metrics.relative.max, max_rel.largest());
  const double largest = max_abs.largest();
  if (largest > 0) {
    uint64_t over = 0;
    uint64_t different = 0;
    for (size_t i = 0; i < count; ++i) {
      const double e = std::fabs(d[i]);
      different += e > 0;
      const double allowed = tolerance.absolute + tolerance.relative * std::fabs(b[i]);
      over += e > allowed;
      // Rarely divided: only where it is the worst so far.
      if (e > metrics.worst_excess * allowed && allowed > 0) metrics.worst_excess = e / allowed;
    }
    metrics.over_tolerance += over;
    metrics.different += different;
    // Equal elements fall into the first bucket, which is not looked at.
    uint64_t* const buckets = histogram.data();
    for (size_t i = 0; i < count; ++i) ++buckets[std::bit_cast<uint64_t>(std::fabs(d[i])) >> (52 - kBucketBits)];
  }
  if (largest <= metrics.absolute.max) return false;
  metrics.absolute.max = largest;
  size_t worst = 0;
  while (std::fabs(d[worst]) != largest) ++worst;
  metrics.worst.index = offset + worst;
  return true;
}

template <typename Real>
void ElementwiseComparison::Sums::MindstudioRelative(size_t count) {
  constexpr Real kEpsilon = std::numeric_limits<Real>::epsilon();
  Real largest = 0;
  uint64_t thousandth = 0;
  uint64_t five = 0;
  for (size_t i = 0; i < count; ++i) {
    Real x = static_cast<Real>(a[i]);
    Real y = static_cast<Real>(b[i]);
    if (y == 0) {
      x += kEpsilon;
      y += kEpsilon;
    }
    const Real r = std::fabs((x - y) / y);
    // numpy compares a float32 array with the float32 nearest to the threshold.
    thousandth += r < static_cast<Real>(0.001);
    five += r < static_cast<Real>(0.005);
    largest = r > largest || std::isnan(r) ? r : largest;
  }
  metrics.mindstudio.under_thousandth += thousandth;
  metrics.mindstudio.under_five_thousandths += five;
  metrics.mindstudio.max_rel = std::max(metrics.mindstudio.max_rel, static_cast<double>(largest));
}

void ElementwiseComparison::Sums::Mindstudio(size_t count) {
  if (exact_integers) {
    double total = 0;
    for (size_t i = 0; i < count; ++i) {
      const double e = std::fabs(a[i] - b[i]);
      total += e * e;
      metrics.mindstudio.max_abs = std::max(metrics.mindstudio.max_abs, e);
    }
    mindstudio_squares.Add(total);
  }
  if (single_precision) {
    MindstudioRelative<float>(count);
  } else {
    MindstudioRelative<double>(count);
  }
}

template <typename Signed, typename Unsigned>
void ElementwiseComparison::Sums::UlpsOf(const char* from_a, const char* from_b, size_t count) {
  double total = 0;
  double largest = ulp_max;
  uint64_t over = 0;
  for (size_t i = 0; i < count; ++i) {
    // Equal elements, and those that are not compared, are no steps apart.
    const double steps = d[i] == 0 ? 0 : UlpSteps<Signed, Unsigned>(from_a, from_b, i);
    total += steps;
    largest = steps > largest ? steps : largest;
    over += steps > ulp_limit;
  }
  ulp.Add(total);
  ulp_max = largest;
  ulp_over += over;
}

void ElementwiseComparison::Sums::Ulps(const char* from_a, const char* from_b, size_t count) {
  if (ulp_bytes == 2) return UlpsOf<int16_t, uint16_t>(from_a, from_b, count);
  if (ulp_bytes == 4) return UlpsOf<int32_t, uint32_t>(from_a, from_b, count);
  UlpsOf<int64_t, uint64_t>(from_a, from_b, count);
}

void ElementwiseComparison::Sums::AddEqualBlock(const char* from, size_t count) {
  load_target(from, count, target, a);
  Lanes sum;
  bool finite = true;
  const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (size_t i = count; i < padded; ++i) a[i] = 0;
  for (size_t i = 0; i < padded; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) sum.lane[j] += a[i + j] * a[i + j];
  }
  size_t nonzero = 0;
  for (size_t i = 0; i < count; ++i) {
    finite = finite && IsFinite(a[i]);
    nonzero += a[i] != 0;
  }
  size_t left = count;
  double total = sum.total();
  if (!finite) {
    total = 0;
    nonzero = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!IsFinite(a[i])) {
        --left;
        ++metrics.non_finite.same;
        continue;
      }
      total += a[i] * a[i];
      nonzero += a[i] != 0;
    }
  }
  dot.Add(total);
  target_squares.Add(total);
  golden_squares.Add(total);
  nonzero_golden += nonzero;
  for (uint64_t& share : under) share += left;
  metrics.compared += left;
  metrics.elements += count;
  metrics.mindstudio.under_thousandth += count;
  metrics.mindstudio.under_five_thousandths += count;
}

void ElementwiseComparison::Sums::AddBlock(const char* from_a, const char* from_b, size_t count) {
  if (same_type && std::memcmp(from_a, from_b, count * target_size) == 0) return AddEqualBlock(from_a, count);
  any_difference = true;
  load_target(from_a, count, target, a);
  load_golden(from_b, count, golden, b);
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    d[i] = a[i] - b[i];
    finite = finite && IsFinite(a[i]) && IsFinite(b[i]);
  }
  if (exact_integers) {
    for (size_t i = 0; i < count; ++i) {
      d[i] = static_cast<double>(IntegerAt(from_a, i, target.dtype, a[i]) - IntegerAt(from_b, i, golden.dtype, b[i]));
    }
  }
  const uint64_t offset = metrics.elements;
  metrics.elements += count;
  size_t left = count;
  if (!finite) left = CleanNonFinite(count, offset);
  metrics.compared += left;
  Mindstudio(count);
  if (Accumulate(count, offset)) {
    const size_t i = metrics.worst.index - offset;
    metrics.worst.target = CellAt(from_a, i, target.dtype, a[i]);
    metrics.worst.golden = CellAt(from_b, i, golden.dtype, b[i]);
  }
  // Zeros that stand for what is not compared were counted as equal.
  for (uint64_t& share : under) share -= count - left;
  if (ulp_bytes != 0) Ulps(from_a, from_b, count);
}

ElementwiseComparison::ElementwiseComparison(std::unique_ptr<Sums> sums) : sums_(std::move(sums)) {}
ElementwiseComparison::ElementwiseComparison(ElementwiseComparison&&) noexcept = default;
ElementwiseComparison::~ElementwiseComparison() = default;

absl::StatusOr<ElementwiseComparison> ElementwiseComparison::Start(const TensorDescription& target,
                                                                   const TensorDescription& golden,
                                                                   Tolerance tolerance) {
  auto sums = std::make_unique<Sums>();
  sums->target = target;
  sums->golden = golden;
  sums->tolerance = tolerance;
  sums->load_target = LoadOf(target.dtype);
  sums->load_golden = LoadOf(golden.dtype);
  for (const auto& [load, description] :
       {std::pair(sums->load_target, &target), std::pair(sums->load_golden, &golden)}) {
    if (load == nullptr) {
      return absl::UnimplementedError(
          Cat("elements of ", TorchDTypeName(description->dtype), " cannot be compared one by one"));
    }
  }
  if (IsComplex(target.dtype) != IsComplex(golden.dtype)) {
    return absl::UnimplementedError("complex elements cannot be compared with real ones");
  }
  sums->target_size = LoadedSize(target.dtype);
  sums->golden_size = LoadedSize(golden.dtype);
  sums->same_type =
      target.dtype == golden.dtype && target.scale == golden.scale && target.zero_point == golden.zero_point;
  sums->exact_integers = (IsWideInteger(target.dtype) && IsInteger(golden.dtype)) ||
                         (IsWideInteger(golden.dtype) && IsInteger(target.dtype));
  const auto is_single = [](v1::DType dtype) {
    return dtype == v1::DTYPE_FLOAT32 || dtype == v1::DTYPE_FLOAT16 || dtype == v1::DTYPE_BFLOAT16 || IsFloat8(dtype);
  };
  sums->single_precision = is_single(target.dtype) && is_single(golden.dtype);
  if (sums->same_type) {
    switch (target.dtype) {
      case v1::DTYPE_FLOAT16:
      case v1::DTYPE_BFLOAT16:
        sums->ulp_bytes = 2;
        sums->ulp_limit = 1;
        break;
      case v1::DTYPE_FLOAT32:
        sums->ulp_bytes = 4;
        sums->ulp_limit = 32;
        break;
      case v1::DTYPE_FLOAT64:
        sums->ulp_bytes = 8;
        sums->ulp_limit = 32;
        break;
      default:
        break;
    }
  }
  sums->histogram.resize(kBuckets);
  return ElementwiseComparison(std::move(sums));
}

size_t ElementwiseComparison::target_size() const { return sums_->target_size; }
size_t ElementwiseComparison::golden_size() const { return sums_->golden_size; }

double ElementwiseComparison::ElementAt(const char* target) const {
  double value = 0;
  sums_->load_target(target, 1, sums_->target, &value);
  return value;
}

void ElementwiseComparison::Add(const char* target, const char* golden, size_t count) {
  while (count != 0) {
    const size_t block = std::min(count, kBlock);
    sums_->AddBlock(target, golden, block);
    target += block * sums_->target_size;
    golden += block * sums_->golden_size;
    count -= block;
  }
}

ElementwiseMetrics ElementwiseComparison::Finish() {
  Sums& sums = *sums_;
  ElementwiseMetrics metrics = sums.metrics;
  metrics.same_bits = sums.same_type && !sums.any_difference;
  const auto compared = static_cast<double>(metrics.compared);
  metrics.target_norm = std::sqrt(sums.target_squares.value());
  metrics.golden_norm = std::sqrt(sums.golden_squares.value());
  metrics.euclidean = std::sqrt(sums.squares.value());
  if (metrics.compared != 0) {
    metrics.absolute.mean = sums.abs.value() / compared;
    metrics.absolute.rms = std::sqrt(sums.squares.value() / compared);
    for (size_t i = 0; i < metrics.relative.share_under.size(); ++i) {
      metrics.relative.share_under[i] = static_cast<double>(sums.under[i]) / compared;
    }
  }
  if (sums.nonzero_golden != 0) {
    const auto nonzero = static_cast<double>(sums.nonzero_golden);
    metrics.relative.mean = sums.rel.value() / nonzero;
    metrics.relative.rms = std::sqrt(sums.rel_squares.value() / nonzero);
  }
  const double product = metrics.target_norm * metrics.golden_norm;
  if (metrics.same_bits) {
    metrics.cosine = 1;
  } else if (product > 0) {
    metrics.cosine = std::clamp(sums.dot.value() / product, -1.0, 1.0);
  } else {
    metrics.cosine = metrics.target_norm == 0 && metrics.golden_norm == 0 ? 1 : 0;
  }
  if (sums.ulp_bytes != 0) {
    metrics.ulp.emplace();
    metrics.ulp->max = sums.ulp_max;
    if (metrics.compared != 0) {
      metrics.ulp->mean = sums.ulp.value() / compared;
      metrics.ulp->share_over = static_cast<double>(sums.ulp_over) / compared;
    }
  }
  const uint64_t zero = metrics.compared - metrics.different;
  for (size_t i = 0; i < metrics.absolute.percentiles.size(); ++i) {
    // The tiny part less: 99.9 is not quite 99.9, and 4995.0000001 would be the next element.
    const double rank = AbsoluteErrors::kPercentiles[i] / 100 * compared * (1 - 1e-12);
    auto reached = static_cast<double>(zero);
    if (reached >= rank) continue;
    for (size_t bucket = 1; bucket < kBuckets; ++bucket) {
      reached += static_cast<double>(sums.histogram[bucket]);
      if (reached < rank) continue;
      const uint64_t middle =
          (static_cast<uint64_t>(bucket) << (52 - kBucketBits)) | (uint64_t{1} << (51 - kBucketBits));
      // In the last bucket, that of infinite differences, the middle is NaN.
      const double value = std::bit_cast<double>(middle);
      metrics.absolute.percentiles[i] = value < metrics.absolute.max ? value : metrics.absolute.max;
      break;
    }
  }
  MindstudioSums& mindstudio = metrics.mindstudio;
  mindstudio.cosine_dot = sums.dot.value();
  mindstudio.target_squares = sums.target_squares.value();
  mindstudio.golden_squares = sums.golden_squares.value();
  mindstudio.distance_squares = sums.exact_integers ? sums.mindstudio_squares.value() : sums.squares.value();
  if (!sums.exact_integers) mindstudio.max_abs = metrics.absolute.max;
  return metrics;
}

}  // namespace msprobe::server
