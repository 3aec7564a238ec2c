#include "agent/torch/cuda/cuda_trial.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/stats/statistics.h"
#include "agent/torch/device/device_pieces.h"

namespace msprobe::capture {
namespace {

constexpr std::array kFloats{stats::DType::kFloat32, stats::DType::kFloat16, stats::DType::kBFloat16};
constexpr std::array kIntegers{stats::DType::kBool,  stats::DType::kUInt8, stats::DType::kInt8,
                               stats::DType::kInt16, stats::DType::kInt32, stats::DType::kInt64};
// More than two blocks, and no multiple of anything.
constexpr int64_t kManyElements = 2 * 16384 + 77;
constexpr int64_t kStrangeElements = 999;
constexpr size_t kAlignment = 64;
// As far as DeviceRow's floats may be from the host's doubles.
constexpr double kNear = 1e-5;

// IEEE formats: a sign, `exponent` bits, `mantissa` bits.
struct FloatForm {
  int exponent, mantissa;
};

std::optional<FloatForm> FormOf(stats::DType dtype) {
  if (dtype == stats::DType::kFloat32) return FloatForm{8, 23};
  if (dtype == stats::DType::kFloat16) return FloatForm{5, 10};
  if (dtype == stats::DType::kBFloat16) return FloatForm{8, 7};
  return std::nullopt;
}

// Of either sign, between 1/64 and 64.
uint64_t RandomFloat(FloatForm form, uint64_t random) {
  const uint64_t bias = (uint64_t{1} << (form.exponent - 1)) - 1;
  const uint64_t mantissa = random & ((uint64_t{1} << form.mantissa) - 1);
  const uint64_t exponent = bias - 6 + (random >> 40) % 12;
  const uint64_t sign = random >> 63;
  return (sign << (form.exponent + form.mantissa)) | (exponent << form.mantissa) | mantissa;
}

std::array<uint64_t, 9> StrangeFloats(FloatForm form) {
  const uint64_t infinity = ((uint64_t{1} << form.exponent) - 1) << form.mantissa;
  const uint64_t sign = uint64_t{1} << (form.exponent + form.mantissa);
  return {infinity + 1, infinity, sign | infinity, 0, sign, 1, sign | 1, infinity - 1, sign | (infinity - 1)};
}

std::array<uint64_t, 4> StrangeIntegers(stats::DType dtype) {
  const int bits = static_cast<int>(stats::ElementSize(dtype)) * 8;
  if (dtype == stats::DType::kBool) return {1, 0, 1, 0};
  if (dtype == stats::DType::kUInt8) return {0, 255, 1, 254};
  const uint64_t least = uint64_t{1} << (bits - 1);
  return {least, least - 1, 0, std::numeric_limits<uint64_t>::max()};
}

stats::Statistics HostsOf(const std::byte* data, stats::DType dtype, int64_t elements) {
  const int64_t stride = 1;
  return stats::ComputeStatistics({.data = data, .dtype = dtype, .sizes = {&elements, 1}, .strides = {&stride, 1}});
}

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The first number that differs, in words; empty: none does.
std::string Difference(const stats::Statistics& found, const stats::Statistics& expected, int64_t elements) {
  const auto near = [](double a, double b, double size) {
    return Same(a, b) || std::fabs(a - b) <= kNear * std::fabs(size);
  };
  const auto differs = [](const char* what, auto a, auto b) { return absl::StrCat(what, " ", a, " in place of ", b); };
  const double size = expected.finite_norm / std::sqrt(static_cast<double>(elements));
  if (!Same(found.max, expected.max)) return differs("max", found.max, expected.max);
  if (!Same(found.min, expected.min)) return differs("min", found.min, expected.min);
  if (!near(found.mean, expected.mean, size)) return differs("mean", found.mean, expected.mean);
  if (!near(found.norm, expected.norm, expected.norm)) return differs("norm", found.norm, expected.norm);
  if (!near(found.variance, expected.variance, expected.variance)) {
    return differs("variance", found.variance, expected.variance);
  }
  if (expected.has_finite) {
    if (found.finite_max != expected.finite_max) return differs("finite max", found.finite_max, expected.finite_max);
    if (found.finite_min != expected.finite_min) return differs("finite min", found.finite_min, expected.finite_min);
    if (!near(found.finite_norm, expected.finite_norm, expected.finite_norm)) {
      return differs("finite norm", found.finite_norm, expected.finite_norm);
    }
  }
  if (expected.is_integer) {
    if (found.integer_max != expected.integer_max) return differs("max", found.integer_max, expected.integer_max);
    if (found.integer_min != expected.integer_min) return differs("min", found.integer_min, expected.integer_min);
  }
  if (found.nan_count != expected.nan_count) return differs("NaN", found.nan_count, expected.nan_count);
  if (found.positive_inf_count != expected.positive_inf_count) {
    return differs("+inf", found.positive_inf_count, expected.positive_inf_count);
  }
  if (found.negative_inf_count != expected.negative_inf_count) {
    return differs("-inf", found.negative_inf_count, expected.negative_inf_count);
  }
  if (found.zero_count != expected.zero_count) return differs("zeros", found.zero_count, expected.zero_count);
  return {};
}

}  // namespace

CudaTrial::CudaTrial() {
  for (const stats::DType dtype : kFloats) {
    for (const bool strange : {false, true}) Add(dtype, strange, strange ? kStrangeElements : kManyElements);
    Add(dtype, false, 1);
  }
  for (const stats::DType dtype : kIntegers) {
    Add(dtype, true, kManyElements);
    Add(dtype, false, 1);
  }
}

void CudaTrial::Add(stats::DType dtype, bool strange, int64_t elements) {
  const auto aligned = [](size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  const size_t size = stats::ElementSize(dtype);
  const size_t offset = aligned(bytes_) + size;  // behind where a vector begins
  const size_t rows = aligned(offset + static_cast<size_t>(elements) * size);
  patterns_.push_back({dtype, strange, elements, offset, rows});
  bytes_ = rows + CudaKernels::PiecesOf(elements).size() * kRowStride;
}

void CudaTrial::Fill(std::span<std::byte> memory) const {
  std::memset(memory.data(), 0, bytes_);
  std::mt19937_64 random(1);
  for (const Pattern& pattern : patterns_) {
    const size_t size = stats::ElementSize(pattern.dtype);
    const std::optional<FloatForm> form = FormOf(pattern.dtype);
    std::byte* const elements = memory.data() + pattern.offset;
    const auto set = [&](int64_t place, uint64_t bits) {  // little-endian, as CUDA's hosts are
      std::memcpy(elements + static_cast<size_t>(place) * size, &bits, size);
    };
    for (int64_t i = 0; i < pattern.elements; ++i) {
      const uint64_t drawn = random();
      set(i, form ? RandomFloat(*form, drawn) : pattern.dtype == stats::DType::kBool ? drawn % 2 : drawn);
    }
    if (!pattern.strange) continue;
    const auto scatter = [&](const auto& values) {
      for (size_t i = 0; i < values.size(); ++i) {
        for (const int64_t turn : {0, 1, 2}) {
          set((pattern.elements - 1) * static_cast<int64_t>(3 * i + turn) / static_cast<int64_t>(3 * values.size()),
              values[i]);
        }
      }
      set(pattern.elements - 1, values[1]);
    };
    if (form) {
      scatter(StrangeFloats(*form));
    } else {
      scatter(StrangeIntegers(pattern.dtype));
    }
  }
}

absl::Status CudaTrial::Launch(const CudaKernels& kernels, std::byte* memory, void* stream) const {
  for (const Pattern& pattern : patterns_) {
    absl::Status launched =
        kernels.Launch(pattern.dtype, memory + pattern.offset, pattern.elements, memory + pattern.rows, stream);
    if (!launched.ok()) return launched;
  }
  return absl::OkStatus();
}

absl::Status CudaTrial::Judge(std::span<const std::byte> memory) const {
  for (const Pattern& pattern : patterns_) {
    const stats::Statistics found =
        CombineRows(memory.data() + pattern.rows, CudaKernels::PiecesOf(pattern.elements), pattern.dtype, 1);
    const stats::Statistics expected = HostsOf(memory.data() + pattern.offset, pattern.dtype, pattern.elements);
    const std::string difference = Difference(found, expected, pattern.elements);
    if (!difference.empty()) {
      return absl::InternalError(
          absl::StrCat("type ", static_cast<int>(pattern.dtype), ", ", pattern.elements, " elements: ", difference));
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::capture
