#include "server/analysis/check/accuracy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "server/analysis/check/accuracy_kernels.h"
#include "server/analysis/check/dtype_standard.h"
#include "server/analysis/compare/element_load.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

// ULPs below the largest number within which rounding may or may not overflow.
constexpr double kOverflowUlps = 4;

// How the kernels read the elements of a dtype; kFloat64: once they are loaded.
AccuracyElement ElementOf(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT32:
    case v1::DTYPE_COMPLEX64:
      return AccuracyElement::kFloat32;
    case v1::DTYPE_BFLOAT16:
      return AccuracyElement::kBfloat16;
    default:
      return AccuracyElement::kFloat64;
  }
}

// Elements as doubles: in `to`, or where they are.
const char* Loaded(ElementLoad load, const char* from, size_t count, const TensorDescription& description, double* to) {
  if (description.dtype == v1::DTYPE_FLOAT64 || description.dtype == v1::DTYPE_COMPLEX128) return from;
  load(from, count, description, to);
  return reinterpret_cast<const char*>(to);
}

// The next block comes from memory while this one is computed. Behind the last one nothing is read.
void Prefetch(const char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

// A sum, and what rounding lost of it: exactly, whichever is larger, without a branch (Knuth).
struct Sum {
  void Add(double term) {
    const double next = sum + term;
    const double added = next - sum;
    lost += (sum - (next - added)) + (term - added);
    sum = next;
  }
  double value() const { return std::isfinite(sum) ? sum + lost : sum; }

  double sum = 0;
  double lost = 0;
};

}  // namespace

double Accuracy::error_balance() const {
  if (elements == 0) return 0;
  return static_cast<double>(higher > lower ? higher - lower : lower - higher) / static_cast<double>(elements);
}

struct AccuracyComparison::Sums {
  const AccuracyKernels& kernels = BestAccuracyKernels();
  TensorDescription target;
  TensorDescription golden;
  ElementLoad load_target = nullptr;
  ElementLoad load_golden = nullptr;
  size_t target_size = 0;
  size_t golden_size = 0;
  const DTypeStandard* standard = nullptr;
  bool exact_integers = false;
  double largest = std::numeric_limits<double>::max();  // finite, of the target's dtype
  double may_overflow = std::numeric_limits<double>::max();

  Accuracy accuracy;
  WorstElement mismatch;
  Sum abs, squares, rel, rel_squares, dot, target_squares, golden_squares, cann, ulp, normal_rel, normal_squares;
  uint64_t nonzero = 0;
  uint64_t under[4] = {};
  std::vector<uint32_t> histogram;  // kAccuracyPlaces a bucket; empty: no error was seen
  uint64_t unfolded = 0;            // elements in it, or soon
  std::vector<uint64_t> buckets;    // what was folded
  bool has_zeros = false;           // the last block had, or other numbers that take two walks

  alignas(64) double a[kAccuracyBlock];
  alignas(64) double b[kAccuracyBlock];
  alignas(64) double d[kAccuracyBlock];
  alignas(64) double ulps[kAccuracyBlock];
  // Counters of the last block's errors, which count while the next block is summed.
  alignas(64) uint32_t place_rows[2][kAccuracyBlock];
  uint32_t* places = place_rows[0];
  uint32_t* next_places = place_rows[1];
  size_t placed = 0;

  void AddBlock(const char* from_a, const char* from_b, size_t count);
  size_t CleanNonFinite(size_t count);
  bool Agree(double x, double y) const;
  void CountErrors();
  void Placed(size_t count);
  void FoldHistogram();
  size_t SumBlock(const char* from_a, const char* from_b, size_t count, size_t padded, BlockSums* sums);
  void FindWorst(size_t count);
  void Add(const BlockSums& sums);
  void Add(const BlockCounts& counts, size_t filled);
};

// Whether a number that is not finite, or a golden one that the dtype cannot hold, is what the dtype has for the other.
bool AccuracyComparison::Sums::Agree(double x, double y) const {
  if (std::isnan(y)) return std::isnan(x);
  const bool overflows = std::fabs(y) > largest;
  if (std::isinf(x) || overflows) {
    if (std::isnan(x)) return overflows && standard != nullptr && !standard->has_infinity;
    if (std::signbit(x) != std::signbit(y) || std::fabs(y) < may_overflow) return false;
    return std::isinf(x) || !std::isinf(y) || (standard != nullptr && !standard->has_infinity)
               ? std::fabs(x) >= may_overflow
               : false;
  }
  return false;
}

// Elements that cannot be subtracted become zeros on both sides, counted. Gives how many are left to compare.
size_t AccuracyComparison::Sums::CleanNonFinite(size_t count) {
  size_t left = count;
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(a[i]) && std::fabs(b[i]) <= largest) continue;
    --left;
    NonFiniteElements& non_finite = accuracy.non_finite;
    if (Agree(a[i], b[i])) {
      ++non_finite.same;
    } else {
      if (std::isnan(a[i]) != std::isnan(b[i])) {
        ++non_finite.nan;
      } else if (std::isinf(a[i]) && std::isinf(b[i])) {
        ++non_finite.inf_sign;
      } else {
        ++non_finite.inf;
      }
      if (!non_finite.first_mismatch) {
        non_finite.first_mismatch = accuracy.elements + i;
        mismatch = {accuracy.elements + i, Cell::Real(a[i]), Cell::Real(b[i])};
      }
    }
    a[i] = b[i] = d[i] = 0;
  }
  return left;
}

void AccuracyComparison::Sums::CountErrors() {
  for (size_t i = 0; i < placed; ++i) ++histogram[places[i]];
  placed = 0;
}

// The places of a block with errors are known.
void AccuracyComparison::Sums::Placed(size_t count) {
  if (histogram.empty()) histogram.resize(kAccuracyPlaces * kAccuracyBuckets);
  placed = count;
  unfolded += count;
  if (unfolded > std::numeric_limits<uint32_t>::max() - kAccuracyBlock) FoldHistogram();
}

void AccuracyComparison::Sums::FoldHistogram() {
  if (histogram.empty()) return;
  CountErrors();
  buckets.resize(kAccuracyBuckets);
  for (size_t i = 0; i < histogram.size(); ++i) buckets[i / kAccuracyPlaces] += std::exchange(histogram[i], 0);
  unfolded = 0;
}

void AccuracyComparison::Sums::FindWorst(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::fabs(d[i]) != accuracy.absolute.max) continue;
    accuracy.worst = {accuracy.elements + i, Cell::Real(a[i]), Cell::Real(b[i])};
    return;
  }
}

void AccuracyComparison::Sums::Add(const BlockSums& sums) {
  abs.Add(sums.abs);
  squares.Add(sums.squares);
  rel.Add(sums.rel);
  rel_squares.Add(sums.rel_squares);
  dot.Add(sums.dot);
  target_squares.Add(sums.target_squares);
  golden_squares.Add(sums.golden_squares);
  cann.Add(sums.cann);
  ulp.Add(sums.ulp);
  normal_rel.Add(sums.normal_rel);
  normal_squares.Add(sums.normal_squares);
  nonzero += static_cast<uint64_t>(sums.nonzero);
  accuracy.split.normal += static_cast<uint64_t>(sums.normal);
  accuracy.golden_max = std::max(accuracy.golden_max, sums.golden_max);
  accuracy.relative.max = std::max(accuracy.relative.max, sums.max_rel);
  accuracy.mare = std::max(accuracy.mare, sums.cann_max);
  accuracy.ulp.max = std::max(accuracy.ulp.max, sums.ulp_max);
  accuracy.split.normal_max_rel = std::max(accuracy.split.normal_max_rel, sums.normal_max_rel);
}

void AccuracyComparison::Sums::Add(const BlockCounts& counts, size_t filled) {
  for (size_t i = 0; i < 4; ++i) under[i] += counts.under[i] - filled;
  accuracy.higher += counts.higher;
  accuracy.lower += counts.lower;
  accuracy.ulp.over_one += counts.over_one;
  accuracy.ulp.over_limit += counts.over_limit;
  accuracy.split.normal_over += counts.normal_over;
  accuracy.split.small_over_threshold += counts.small_over_threshold;
  accuracy.split.small_over_benchmark += counts.small_over_benchmark;
  accuracy.split.over_accumulative += counts.over_accumulative;
  accuracy.over_torch += counts.over_torch;
}

// Gives how many elements are compared. Whole blocks of ordinary numbers take one walk; zeros come in neighbours.
size_t AccuracyComparison::Sums::SumBlock(const char* from_a, const char* from_b, size_t count, size_t padded,
                                          BlockSums* sums) {
  const AccuracyElement element_a = ElementOf(target.dtype);
  const AccuracyElement element_b = ElementOf(golden.dtype);
  const char* const at_a =
      element_a == AccuracyElement::kFloat64 ? Loaded(load_target, from_a, count, target, a) : from_a;
  const char* const at_b =
      element_b == AccuracyElement::kFloat64 ? Loaded(load_golden, from_b, count, golden, b) : from_b;
  const auto subtract = kernels.subtract[static_cast<size_t>(element_a)][static_cast<size_t>(element_b)];
  const auto fuse = kernels.fuse[static_cast<size_t>(element_a)][static_cast<size_t>(element_b)];
  const auto ordinary = [](const BlockRange& range) {
    return range.finite && range.least >= AccuracyKernels::kLeastFused;
  };
  if (fuse != nullptr && count == kAccuracyBlock && !has_zeros && standard != nullptr && standard->mantissa_bits < 52) {
    if (placed != kAccuracyBlock) CountErrors();
    const BlockRange range = fuse(at_a, at_b, largest, *standard, placed == 0 ? nullptr : places, histogram.data(), b,
                                  d, ulps, next_places, sums);
    placed = 0;
    if (ordinary(range)) {
      if (sums->max_abs != 0) {
        std::swap(places, next_places);
        Placed(count);
      }
      if (sums->max_abs > accuracy.absolute.max) subtract(at_a, at_b, count, largest, a, b, d);  // for FindWorst
      return count;
    }
  }
  BlockRange range = subtract(at_a, at_b, count, largest, a, b, d);
  Prefetch(from_a + count * target_size, kAccuracyBlock * target_size);
  Prefetch(from_b + count * golden_size, kAccuracyBlock * golden_size);
  has_zeros = !ordinary(range);
  if (exact_integers) {
    for (size_t i = 0; i < count; ++i) {
      d[i] = static_cast<double>(IntegerAt(from_a, i, target.dtype, a[i]) - IntegerAt(from_b, i, golden.dtype, b[i]));
    }
  }
  size_t left = count;
  if (!range.finite) {
    left = CleanNonFinite(count);
    range.least = 0;
  }
  kernels.sum(a, b, d, padded, range.least, standard, ulps, sums);
  if (sums->max_abs != 0) {
    CountErrors();
    kernels.place(d, count, places);
    Placed(count);
  }
  return left;
}

void AccuracyComparison::Sums::AddBlock(const char* from_a, const char* from_b, size_t count) {
  const size_t padded = (count + kAccuracyLanes - 1) / kAccuracyLanes * kAccuracyLanes;
  BlockSums sums;
  const size_t left = SumBlock(from_a, from_b, count, padded, &sums);
  Add(sums);
  if (sums.max_abs == 0) {
    for (uint64_t& each : under) each += left;
  } else {
    BlockCounts counts;
    kernels.count(b, d, ulps, padded, standard, sums, &counts);
    Add(counts, padded - left);
    if (sums.max_abs > accuracy.absolute.max) {
      accuracy.absolute.max = sums.max_abs;
      FindWorst(count);
    }
  }
  accuracy.elements += count;
  accuracy.compared += left;
}

AccuracyComparison::AccuracyComparison(std::unique_ptr<Sums> sums) : sums_(std::move(sums)) {}
AccuracyComparison::AccuracyComparison(AccuracyComparison&&) noexcept = default;
AccuracyComparison::~AccuracyComparison() = default;

absl::StatusOr<AccuracyComparison> AccuracyComparison::Start(const TensorDescription& target,
                                                             const TensorDescription& golden) {
  auto sums = std::make_unique<Sums>();
  sums->target = target;
  sums->golden = golden;
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
  sums->standard = StandardOf(target.dtype);
  if (sums->standard != nullptr) {
    const DTypeStandard& standard = *sums->standard;
    const double ulp = std::ldexp(1.0, std::ilogb(standard.largest) - standard.mantissa_bits);
    // Half an ULP over the largest number still rounds to it.
    sums->largest = standard.largest + (standard.mantissa_bits < 52 ? ulp / 2 : 0);
    sums->may_overflow = standard.largest - kOverflowUlps * ulp;
  }
  sums->exact_integers = IsInteger(target.dtype) && IsInteger(golden.dtype) &&
                         (IsWideInteger(target.dtype) || IsWideInteger(golden.dtype));
  sums->accuracy.dtype = target.dtype;
  return AccuracyComparison(std::move(sums));
}

size_t AccuracyComparison::target_size() const { return sums_->target_size; }
size_t AccuracyComparison::golden_size() const { return sums_->golden_size; }

void AccuracyComparison::Add(const char* target, const char* golden, size_t count) {
  while (count != 0) {
    const size_t block = std::min(count, kAccuracyBlock);
    sums_->AddBlock(target, golden, block);
    target += block * sums_->target_size;
    golden += block * sums_->golden_size;
    count -= block;
  }
}

Accuracy AccuracyComparison::Finish() {
  Sums& sums = *sums_;
  Accuracy accuracy = sums.accuracy;
  const auto compared = static_cast<double>(accuracy.compared);
  accuracy.different = accuracy.higher + accuracy.lower;
  accuracy.ulp.over_half = sums.standard != nullptr ? accuracy.different : 0;
  accuracy.split.small = sums.standard != nullptr ? accuracy.compared - accuracy.split.normal : 0;
  accuracy.split.normal_squares = sums.normal_squares.value();
  if (accuracy.split.normal != 0) {
    accuracy.split.normal_mean_rel = sums.normal_rel.value() / static_cast<double>(accuracy.split.normal);
  }
  accuracy.target_norm = std::sqrt(sums.target_squares.value());
  accuracy.golden_norm = std::sqrt(sums.golden_squares.value());
  if (accuracy.compared != 0) {
    accuracy.absolute.mean = sums.abs.value() / compared;
    accuracy.absolute.rms = std::sqrt(sums.squares.value() / compared);
    accuracy.mere = sums.cann.value() / compared;
    accuracy.ulp.mean = sums.ulp.value() / compared;
    for (size_t i = 0; i < 4; ++i) accuracy.relative.share_under[i] = static_cast<double>(sums.under[i]) / compared;
  }
  if (sums.nonzero != 0) {
    accuracy.relative.mean = sums.rel.value() / static_cast<double>(sums.nonzero);
    accuracy.relative.rms = std::sqrt(sums.rel_squares.value() / static_cast<double>(sums.nonzero));
  }
  const double product = accuracy.target_norm * accuracy.golden_norm;
  if (accuracy.absolute.max == 0) {
    accuracy.cosine = 1;
  } else if (product > 0) {
    accuracy.cosine = std::clamp(sums.dot.value() / product, -1.0, 1.0);
  } else {
    accuracy.cosine = 0;
  }
  if (accuracy.non_finite.first_mismatch) accuracy.worst = sums.mismatch;
  // The first bucket is that of no error: what was not counted had none.
  sums.FoldHistogram();
  const std::vector<uint64_t>& buckets = sums.buckets;
  uint64_t with_error = 0;
  for (size_t bucket = 1; bucket < buckets.size(); ++bucket) with_error += buckets[bucket];
  for (size_t i = 0; i < accuracy.absolute.percentiles.size(); ++i) {
    const double rank = AbsoluteErrors::kPercentiles[i] / 100 * compared * (1 - 1e-12);
    auto reached = compared - static_cast<double>(with_error);
    if (reached >= rank) continue;
    for (size_t bucket = 1; bucket < buckets.size(); ++bucket) {
      reached += static_cast<double>(buckets[bucket]);
      if (reached < rank) continue;
      const uint64_t middle =
          (static_cast<uint64_t>(bucket) << (52 - kAccuracyBucketBits)) | (uint64_t{1} << (51 - kAccuracyBucketBits));
      const double value = std::bit_cast<double>(middle);
      accuracy.absolute.percentiles[i] = value < accuracy.absolute.max ? value : accuracy.absolute.max;
      break;
    }
  }
  return accuracy;
}

}  // namespace msprobe::server
