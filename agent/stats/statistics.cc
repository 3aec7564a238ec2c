#include "agent/stats/statistics.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "agent/stats/checksum.h"
#include "agent/stats/decode.h"
#include "agent/stats/floating_point_mode.h"
#include "agent/stats/layout.h"
#include "agent/stats/signs.h"
#include "agent/stats/statistics_internal.h"

namespace msprobe::stats {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kDecodedValues = 1024;

// A variance below this share of the mean square is a difference of nearly equal numbers, and is computed again.
// For fp16 and bf16 the sum has an error of 6 * 2^-24 of the elements' size and the squares one of 10 * 2^-24
// (SumShortFloats). Together that is (2 * 6 + 10) * 2^-24 of the mean square.
constexpr double kCancelling = 1e-6;
constexpr double CancellingOf(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? 0.1 : kCancelling;
}

// A sum of doubles that corrects its rounding errors (Neumaier).
class CompensatedSum {
 public:
  void Add(double value) {
    const double sum = sum_ + value;
    lost_ += std::fabs(sum_) >= std::fabs(value) ? (sum_ - sum) + value : (value - sum) + sum_;
    sum_ = sum;
  }
  // Not finite if the sum has overflowed.
  double value() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

struct FloatTotals {
  uint64_t count = 0;
  CompensatedSum sum;
  CompensatedSum squares;
  double max = -kInfinity;
  double min = kInfinity;
  uint64_t zeros = 0;
  uint64_t nans = 0;
  uint64_t positive_infs = 0;
  uint64_t negative_infs = 0;

  uint64_t finite() const { return count - nans - positive_infs - negative_infs; }
};

// signs: of these elements; null: they are not wanted.
template <typename Element>
FloatSums SumsOf(const FloatKernels<Element>& kernels, const void* data, size_t count, uint8_t* signs) {
  const auto* elements = static_cast<const Element*>(data);
  FloatSums block;
  kernels.fast(elements, count, &block);
  if (!std::isfinite(block.squares)) kernels.careful(elements, count, &block);
  if (signs != nullptr) kernels.positive(elements, count, signs, /*streamed=*/false);
  return block;
}

// Adds the sums of contiguous elements of one format. max prefers +0 to -0 and min prefers -0 to +0, so that results
// depend neither on the layout nor on the SIMD level.
template <typename Element>
void AddSums(const FloatKernels<Element>& kernels, const FloatSums& block, const void* data, size_t count,
             FloatTotals* totals) {
  constexpr Element kPlusZero = 0;
  constexpr Element kMinusZero = static_cast<Element>(Element{1} << (8 * sizeof(Element) - 1));
  const auto* elements = static_cast<const Element*>(data);
  totals->count += count;
  totals->sum.Add(block.sum);
  totals->squares.Add(block.squares);
  totals->zeros += block.zeros;
  totals->nans += block.nans;
  totals->positive_infs += block.positive_infs;
  totals->negative_infs += block.negative_infs;
  if (block.max > totals->max) {
    totals->max = block.max == 0 && !kernels.contains(elements, count, kPlusZero) ? -0.0 : block.max + 0.0;
  } else if (block.max == 0 && totals->max == 0 && std::signbit(totals->max)) {
    if (kernels.contains(elements, count, kPlusZero)) totals->max = 0.0;
  }
  if (block.min < totals->min) {
    totals->min = block.min == 0 && kernels.contains(elements, count, kMinusZero) ? -0.0 : block.min + 0.0;
  } else if (block.min == 0 && totals->min == 0 && !std::signbit(totals->min)) {
    if (kernels.contains(elements, count, kMinusZero)) totals->min = -0.0;
  }
}

template <typename Element>
void AddFloats(const FloatKernels<Element>& kernels, const void* data, size_t count, FloatTotals* totals,
               uint8_t* signs = nullptr) {
  AddSums(kernels, SumsOf(kernels, data, count, signs), data, count, totals);
}

uint32_t Crc32Of(uint32_t before, const void* data, size_t bytes) {
  return crc32_gzip_refl(before, static_cast<const unsigned char*>(data), bytes);
}

// As AddFloats for one block after the other, where several threads read them. In rounds, whose sums fit on the stack.
// crc32: null, or goes on with these bytes. signs: as SumsOf has them.
template <typename Element>
void AddFloatsWith(Executor& executor, const FloatKernels<Element>& kernels, const Layout::Run& run,
                   FloatTotals* totals, uint32_t* crc32, uint8_t* signs) {
  constexpr size_t kElements = kBlockBytes / sizeof(Element);  // of a block
  constexpr size_t kPartBlocks = 8;
  constexpr size_t kRoundBlocks = 512;
  const auto* const elements = static_cast<const Element*>(run.elements);
  for (size_t begin = 0; begin < run.count; begin += kRoundBlocks * kElements) {
    std::array<FloatSums, kRoundBlocks> sums;
    std::array<uint32_t, kRoundBlocks / kPartBlocks> checksums{};
    const size_t end = std::min(run.count, begin + kRoundBlocks * kElements);
    const size_t blocks = (end - begin + kElements - 1) / kElements;
    const size_t parts = (blocks + kPartBlocks - 1) / kPartBlocks;
    const auto first = [&](size_t block) { return begin + block * kElements; };
    const auto count = [&](size_t block) { return std::min(kElements, end - first(block)); };
    executor.Run(parts, [&](size_t part) {
      const FloatingPointMode mode;  // of the thread that runs this
      const size_t last = std::min(blocks, (part + 1) * kPartBlocks);
      for (size_t block = part * kPartBlocks; block < last; ++block) {
        uint8_t* const bits = signs == nullptr ? nullptr : signs + first(block) / 8;
        sums[block] = SumsOf(kernels, elements + first(block), count(block), bits);
        if (crc32 == nullptr) continue;
        checksums[part] = Crc32Of(checksums[part], elements + first(block), count(block) * sizeof(Element));
      }
    });
    for (size_t block = 0; block < blocks; ++block) {
      AddSums(kernels, sums[block], elements + first(block), count(block), totals);
    }
    if (crc32 == nullptr) continue;
    static const uint32_t kPartShift = Crc32Shift(kPartBlocks * kBlockBytes);
    for (size_t part = 0; part + 1 < parts; ++part) *crc32 = CombineCrc32(*crc32, checksums[part], kPartShift);
    const size_t rest = end - first((parts - 1) * kPartBlocks);
    *crc32 = CombineCrc32(*crc32, checksums[parts - 1], Crc32Shift(rest * sizeof(Element)));
  }
}

// Calls sink(double* values, size_t count) with these elements widened.
template <typename Sink>
void ForEachDecoded(const TensorView& view, const void* elements, size_t count, int64_t origin, Sink&& sink) {
  const size_t element_size = ElementSize(view.dtype);
  const size_t per_element = ValuesPerElement(view.dtype);
  alignas(64) double values[kDecodedValues];
  for (size_t at = 0; at < count; at += kDecodedValues / per_element) {
    const size_t next = std::min(kDecodedValues / per_element, count - at);
    DecodeToDouble(view, static_cast<const char*>(elements) + at * element_size, next, origin, values);
    sink(values, next * per_element);
  }
}

// The same with all elements of a view.
template <typename Sink>
void ForEachDecoded(const TensorView& view, const Layout& layout, int64_t origin, Sink&& sink) {
  const bool resolve = view.negative;  // the conj bit changes no absolute value
  layout.ForEachRun(kBlockBytes, resolve,
                    [&](const void* elements, size_t count) { ForEachDecoded(view, elements, count, origin, sink); });
}

FloatTotals SumDecoded(const TensorView& view, const Layout& layout, const Kernels& kernels, int64_t origin,
                       double scale, double shift) {
  FloatTotals totals;
  ForEachDecoded(view, layout, origin, [&](double* values, size_t count) {
    if (scale != 1 || shift != 0) {
      for (size_t i = 0; i < count; ++i) values[i] = values[i] * scale - shift;
    }
    AddFloats(kernels.float64, values, count, &totals);
  });
  return totals;
}

// What is gathered of the elements beside their sums.
class Gathered {
 public:
  Gathered(const TensorView& view, const Kernels& kernels, const SamePass& wanted) : view_(view), kernels_(kernels) {
    if (wanted.distribution != nullptr) distribution_.emplace();
    if (wanted.quantisation == nullptr) return;
    later_ = QuantisationSums::NeedLargest(wanted.formats);
    quantised_.emplace(view, kernels, wanted.formats & ~later_);
  }

  bool wants() const { return distribution_.has_value() || quantised_.has_value(); }
  void Add(const void* elements, size_t count) {
    ForEachDecoded(view_, elements, count, 0, [&](double* values, size_t next) { AddDoubles(values, next); });
  }
  void AddDoubles(const double* values, size_t count) {
    if (distribution_.has_value()) distribution_->AddDoubles(values, count);
    if (quantised_.has_value()) quantised_->Add(values, count);
  }

  // layout: as it was read.
  void Finish(const Layout& layout, const Statistics& statistics, const SamePass& wanted) {
    if (distribution_.has_value()) *wanted.distribution = FinishDistribution(layout);
    if (!quantised_.has_value() || !statistics.has_finite) return;
    quantised_->Finish(statistics.finite_norm, wanted.quantisation);
    if (later_ == 0) return;
    const double largest = std::max(std::fabs(statistics.finite_max), std::fabs(statistics.finite_min));
    QuantisationSums scaled(view_, kernels_, later_, largest);
    ForEachDecoded(view_, layout, 0, [&](double* values, size_t count) { scaled.Add(values, count); });
    scaled.Finish(statistics.finite_norm, wanted.quantisation);
  }

 private:
  // Elements that are repeated change none of the shares.
  Distribution FinishDistribution(const Layout& layout) const {
    if (!distribution_->cancels()) return distribution_->Finish();
    DistributionSums about_mean(distribution_->mean());
    ForEachDecoded(view_, layout, 0, [&](double* values, size_t count) { about_mean.AddDoubles(values, count); });
    return about_mean.Finish();
  }

  const TensorView& view_;
  const Kernels& kernels_;
  std::optional<DistributionSums> distribution_;
  std::optional<QuantisationSums> quantised_;
  Quantisation::Formats later_ = 0;
};

// wanted: what is not null there. Checksum and signs go on with these elements, which lie one behind the other.
FloatTotals SumFloats(const TensorView& view, const Layout& layout, const Kernels& kernels, Executor* executor,
                      Gathered& gathered, SamePass wanted) {
  static_assert(kBlockBytes % (8 * sizeof(uint64_t)) == 0, "the signs of a block begin with a byte");
  FloatTotals totals;
  auto add = [&](const auto& level, const void* elements, size_t count) {
    AddFloats(level, elements, count, &totals, wanted.signs);
    if (wanted.signs != nullptr) wanted.signs += SignBytes(count);
    if (wanted.crc32 != nullptr) *wanted.crc32 = Crc32Of(*wanted.crc32, elements, count * ElementSize(view.dtype));
  };
  auto run = [&](const auto& level) {
    if (gathered.wants()) {
      return layout.ForEachRun(kBlockBytes, view.negative, [&](const void* elements, size_t count) {
        add(level, elements, count);
        gathered.Add(elements, count);
      });
    }
    const std::optional<Layout::Run> whole = executor == nullptr ? std::nullopt : layout.whole(view.negative);
    if (whole.has_value() && whole->count * ElementSize(view.dtype) >= kSharedBytes) {
      return AddFloatsWith(*executor, level, *whole, &totals, wanted.crc32, wanted.signs);
    }
    layout.ForEachRun(kBlockBytes, view.negative,
                      [&](const void* elements, size_t count) { add(level, elements, count); });
  };
  switch (view.dtype) {
    case DType::kFloat64:
      run(kernels.float64);
      break;
    case DType::kFloat32:
      run(kernels.float32);
      break;
    case DType::kFloat16:
      run(kernels.float16);
      break;
    case DType::kBFloat16:
      run(kernels.bfloat16);
      break;
    default:
      ForEachDecoded(view, layout, 0, [&](double* values, size_t count) {
        AddFloats(kernels.float64, values, count, &totals);
        if (gathered.wants()) gathered.AddDoubles(values, count);
      });
  }
  return totals;
}

// The variance from sums of differences to any origin. Rounding never makes it negative.
double VarianceOf(double sum, double squares, double count) {
  const double mean = sum / count;
  return std::max(0.0, squares / count - mean * mean);
}

void FinishFloats(const TensorView& view, const Layout& layout, const Kernels& kernels, FloatTotals totals,
                  Statistics* out) {
  const uint64_t repeats = layout.repeats();
  const uint64_t finite = totals.finite();
  out->computed = true;
  out->nan_count = totals.nans * repeats;
  out->positive_inf_count = totals.positive_infs * repeats;
  out->negative_inf_count = totals.negative_infs * repeats;
  out->zero_count = totals.zeros * repeats;
  out->has_finite = finite != 0;

  if (finite != 0) {
    const double n = static_cast<double>(finite);
    const double largest = std::max(std::fabs(totals.max), std::fabs(totals.min));
    out->finite_max = totals.max;
    out->finite_min = totals.min;

    // If squares of doubles overflow or vanish, everything is summed again, scaled by a power of two.
    int exponent = 0;
    double scale = 1;
    constexpr double kVanishing = 1e-140;
    if (!std::isfinite(totals.squares.value()) || (largest > 0 && largest < kVanishing)) {
      exponent = std::clamp(std::ilogb(largest), -1000, 1000);
      scale = std::ldexp(1.0, -exponent);
      totals = SumDecoded(view, layout, kernels, 0, scale, 0);
    }
    const double sum = totals.sum.value();
    const double squares = totals.squares.value();
    const double mean = std::clamp(sum / n, out->finite_min * scale, out->finite_max * scale) + 0.0;
    out->finite_mean = std::ldexp(mean, exponent);
    out->finite_norm = std::ldexp(std::sqrt(squares * static_cast<double>(repeats)), exponent);

    if (finite == totals.count && out->finite_max != out->finite_min) {
      double variance = VarianceOf(sum, squares, n);
      if (variance < CancellingOf(view.dtype) * (squares / n)) {
        const FloatTotals about_mean = SumDecoded(view, layout, kernels, 0, scale, mean);
        variance = VarianceOf(about_mean.sum.value(), about_mean.squares.value(), n);
      }
      out->variance = std::ldexp(variance, 2 * exponent);
    }
  }

  if (finite == totals.count) {
    out->max = out->finite_max;
    out->min = out->finite_min;
    out->mean = out->finite_mean;
    out->norm = out->finite_norm;
    return;
  }
  const bool nan = totals.nans != 0;
  const bool up = totals.positive_infs != 0;
  const bool down = totals.negative_infs != 0;
  out->variance = kNaN;
  if (nan) {
    out->max = out->min = out->mean = out->norm = kNaN;
    return;
  }
  out->max = up ? kInfinity : out->has_finite ? out->finite_max : -kInfinity;
  out->min = down ? -kInfinity : out->has_finite ? out->finite_min : kInfinity;
  out->mean = up && down ? kNaN : up ? kInfinity : -kInfinity;
  out->norm = kInfinity;
}

struct IntegerTotals {
  uint64_t count = 0;
  __int128 sum = 0;
  CompensatedSum squares;
  int64_t max = 0;
  int64_t min = 0;
  uint64_t zeros = 0;
};

template <typename Element>
IntegerTotals SumIntegers(const TensorView& view, const Layout& layout,
                          void (*kernel)(const Element*, size_t, IntegerSums*)) {
  IntegerTotals totals;
  layout.ForEachRun(kBlockBytes, view.negative, [&](const void* elements, size_t count) {
    IntegerSums block;
    kernel(static_cast<const Element*>(elements), count, &block);
    const bool first = totals.count == 0;
    if (first || static_cast<Element>(block.max) > static_cast<Element>(totals.max)) totals.max = block.max;
    if (first || static_cast<Element>(block.min) < static_cast<Element>(totals.min)) totals.min = block.min;
    totals.count += count;
    totals.sum += block.sum;
    totals.squares.Add(block.squares);
    totals.zeros += block.zeros;
  });
  return totals;
}

double AsDouble(DType dtype, int64_t bits) {
  return dtype == DType::kUInt64 ? static_cast<double>(static_cast<uint64_t>(bits)) : static_cast<double>(bits);
}

void FinishIntegers(const TensorView& view, const Layout& layout, const Kernels& kernels, const IntegerTotals& totals,
                    Statistics* out) {
  const double n = static_cast<double>(totals.count);
  const double repeats = static_cast<double>(layout.repeats());
  const double squares = totals.squares.value();
  out->computed = true;
  out->is_integer = true;
  out->integer_max = totals.max;
  out->integer_min = totals.min;
  out->max = AsDouble(view.dtype, totals.max);
  out->min = AsDouble(view.dtype, totals.min);
  out->mean = std::clamp(static_cast<double>(totals.sum) / n, out->min, out->max);
  out->norm = std::sqrt(squares * repeats);
  out->zero_count = totals.zeros * layout.repeats();
  if (view.dtype == DType::kBool) {
    out->variance = (static_cast<double>(totals.sum) / n) * (static_cast<double>(totals.zeros) / n);
  } else if (totals.max != totals.min) {
    out->variance = VarianceOf(static_cast<double>(totals.sum), squares, n);
    if (out->variance < kCancelling * (squares / n)) {
      const FloatTotals about_min = SumDecoded(view, layout, kernels, totals.min, 1, 0);
      out->variance = VarianceOf(about_min.sum.value(), about_min.squares.value(), n);
    }
  }
  out->has_finite = true;
  out->finite_max = out->max;
  out->finite_min = out->min;
  out->finite_mean = out->mean;
  out->finite_norm = out->norm;
}

// Every byte but 0 is true.
void FinishBool(const TensorView& view, const Layout& layout, const Kernels& kernels, Statistics* out) {
  IntegerTotals totals = SumIntegers(view, layout, kernels.uint8);
  const uint64_t trues = totals.count - totals.zeros;
  totals.sum = static_cast<__int128>(trues);
  totals.squares = CompensatedSum();
  totals.squares.Add(static_cast<double>(trues));
  totals.max = trues != 0;
  totals.min = totals.zeros == 0;
  FinishIntegers(view, layout, kernels, totals, out);
}

}  // namespace

bool HasPlainFloats(const TensorView& view) {
  return IsWideFloat(view.dtype) && !view.negative && Layout(view, Layout::Order::kRowMajor).whole(true).has_value();
}

Statistics ComputeStatisticsWith(const TensorView& view, const Kernels& kernels, Executor* executor,
                                 const SamePass& same_pass) {
  Statistics out;
  SamePass wanted = same_pass;
  if (wanted.crc32 != nullptr) *wanted.crc32 = 0;
  if (ElementSize(view.dtype) == 0 || view.element_count() == 0) return out;
  if ((wanted.crc32 != nullptr || wanted.signs != nullptr) && !HasPlainFloats(view)) {
    if (wanted.crc32 != nullptr) *wanted.crc32 = Crc32(view);
    if (wanted.signs != nullptr) WriteSignsWith(view, kernels, wanted.signs);
    wanted.crc32 = nullptr;
    wanted.signs = nullptr;
  }
  const FloatingPointMode mode;
  const Layout layout(view, wanted.quantisation == nullptr ? Layout::Order::kAny : Layout::Order::kRowMajor);
  auto integers = [&](auto kernel) { FinishIntegers(view, layout, kernels, SumIntegers(view, layout, kernel), &out); };
  switch (view.dtype) {
    case DType::kInt8:
      integers(kernels.int8);
      break;
    case DType::kInt16:
      integers(kernels.int16);
      break;
    case DType::kInt32:
      integers(kernels.int32);
      break;
    case DType::kInt64:
      integers(kernels.int64);
      break;
    case DType::kUInt8:
      integers(kernels.uint8);
      break;
    case DType::kUInt16:
      integers(kernels.uint16);
      break;
    case DType::kUInt32:
      integers(kernels.uint32);
      break;
    case DType::kUInt64:
      integers(kernels.uint64);
      break;
    case DType::kBool:
      FinishBool(view, layout, kernels, &out);
      break;
    default: {
      Gathered gathered(view, kernels, wanted);
      FinishFloats(view, layout, kernels, SumFloats(view, layout, kernels, executor, gathered, wanted), &out);
      gathered.Finish(layout, out, wanted);
    }
  }
  return out;
}

Statistics ComputeStatistics(const TensorView& view, Executor* executor, const SamePass& same_pass) {
  return ComputeStatisticsWith(view, BestKernels(), executor, same_pass);
}

}  // namespace msprobe::stats
