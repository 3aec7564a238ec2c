#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "agent/stats/statistics.h"

// For tests: slow and obvious versions of the library's functions. They work on one element at a time, in long double,
// with decoders written from the formats' definitions.

namespace msprobe::stats::naive {

inline constexpr long double kInfinity = std::numeric_limits<long double>::infinity();
inline constexpr long double kNaN = std::numeric_limits<long double>::quiet_NaN();

// A tensor that owns its memory.
struct Tensor {
  DType dtype = DType::kFloat32;
  std::vector<char> bytes;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // elements
  bool conjugate = false;
  bool negative = false;
  double scale = 1;
  int64_t zero_point = 0;

  TensorView view() const {
    TensorView view;
    view.data = bytes.data() + offset * static_cast<int64_t>(ElementSize(dtype));
    view.dtype = dtype;
    view.sizes = sizes;
    view.strides = strides;
    view.conjugate = conjugate;
    view.negative = negative;
    view.scale = scale;
    view.zero_point = zero_point;
    return view;
  }
};

template <typename T>
Tensor Vector(DType dtype, const std::vector<T>& elements) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes.resize(elements.size() * sizeof(T));
  if (!elements.empty()) std::memcpy(tensor.bytes.data(), elements.data(), tensor.bytes.size());
  tensor.sizes = {static_cast<int64_t>(tensor.bytes.size() / ElementSize(dtype))};
  tensor.strides = {1};
  return tensor;
}

// Visits the addresses of the elements in row-major order.
inline void ForEachElement(const TensorView& view, const std::function<void(const char*)>& visit, size_t dimension = 0,
                           int64_t offset = 0) {
  if (dimension == view.sizes.size()) {
    visit(static_cast<const char*>(view.data) + offset * static_cast<int64_t>(ElementSize(view.dtype)));
    return;
  }
  for (int64_t i = 0; i < view.sizes[dimension]; ++i) {
    ForEachElement(view, visit, dimension + 1, offset + i * view.strides[dimension]);
  }
}

// The value of an IEEE float with 1 sign bit, `exponent_bits` and `mantissa_bits`.
inline long double Ieee(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const uint32_t fraction = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const long double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1.0L : 1.0L;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction ? kNaN : sign * kInfinity;
  if (exponent == 0) return sign * std::ldexp(static_cast<long double>(fraction), 1 - bias - mantissa_bits);
  return sign * std::ldexp(static_cast<long double>(fraction + (1u << mantissa_bits)), exponent - bias - mantissa_bits);
}

template <typename T>
T Read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// The one or two values of an element.
inline std::vector<long double> Decode(const TensorView& view, const char* at) {
  const long double sign = view.negative ? -1 : 1;
  const auto byte = Read<uint8_t>(at);
  const auto dequantise = [&](long double q) { return (q - view.zero_point) * static_cast<long double>(view.scale); };
  switch (view.dtype) {
    case DType::kFloat64:
      return {sign * Read<double>(at)};
    case DType::kFloat32:
      return {sign * Read<float>(at)};
    case DType::kFloat16:
      return {sign * Ieee(Read<uint16_t>(at), 5, 10)};
    case DType::kBFloat16:
      return {sign * Ieee(Read<uint16_t>(at), 8, 7)};
    case DType::kFloat8E5M2:
      return {sign * Ieee(byte, 5, 2)};
    case DType::kFloat8E4M3FN:  // no infinities: the exponent of all ones is an ordinary one
      if ((byte & 0x7f) == 0x7f) return {kNaN};
      return {sign * (byte & 0x80 ? -1 : 1) * Ieee(byte & 0x7f, 5, 3) * std::ldexp(1.0L, 15 - 7)};
    case DType::kFloat8E4M3FNUZ:
      if (byte == 0x80) return {kNaN};
      return {sign * (byte & 0x80 ? -1 : 1) * Ieee(byte & 0x7f, 5, 3) * std::ldexp(1.0L, 15 - 8)};
    case DType::kFloat8E5M2FNUZ:
      if (byte == 0x80) return {kNaN};
      return {sign * (byte & 0x80 ? -1 : 1) * Ieee(byte & 0x7f, 6, 2) * std::ldexp(1.0L, 31 - 16)};
    case DType::kFloat8E8M0FNU:
      return {byte == 0xff ? kNaN : std::ldexp(1.0L, byte - 127)};
    case DType::kFloat4E2M1FNX2: {
      std::vector<long double> values;
      for (uint32_t nibble : {byte & 15u, uint32_t{byte} >> 4}) {
        values.push_back(sign * (nibble & 8 ? -1 : 1) * Ieee(nibble & 7, 3, 1) * std::ldexp(1.0L, 3 - 1));
      }
      return values;
    }
    case DType::kInt8:
      return {static_cast<long double>(view.negative ? static_cast<int8_t>(-Read<int8_t>(at)) : Read<int8_t>(at))};
    case DType::kUInt8:
      return {static_cast<long double>(view.negative ? static_cast<uint8_t>(-byte) : byte)};
    case DType::kInt16:
      return {sign * Read<int16_t>(at)};
    case DType::kUInt16:
      return {static_cast<long double>(Read<uint16_t>(at))};
    case DType::kInt32:
      return {sign * Read<int32_t>(at)};
    case DType::kUInt32:
      return {static_cast<long double>(Read<uint32_t>(at))};
    case DType::kInt64:
      return {sign * static_cast<long double>(Read<int64_t>(at))};
    case DType::kUInt64:
      return {static_cast<long double>(Read<uint64_t>(at))};
    case DType::kBool:
      return {byte ? 1.0L : 0.0L};
    case DType::kComplex32:
      return {std::hypot(Ieee(Read<uint16_t>(at), 5, 10), Ieee(Read<uint16_t>(at + 2), 5, 10))};
    case DType::kComplex64:
      return {std::hypot(static_cast<long double>(Read<float>(at)), static_cast<long double>(Read<float>(at + 4)))};
    case DType::kComplex128:
      return {std::hypot(static_cast<long double>(Read<double>(at)), static_cast<long double>(Read<double>(at + 8)))};
    case DType::kQInt8:
      return {dequantise(Read<int8_t>(at))};
    case DType::kQUInt8:
      return {dequantise(byte)};
    case DType::kQInt32:
      return {dequantise(Read<int32_t>(at))};
    default:
      return {};
  }
}

struct Expected {
  uint64_t count = 0, finite = 0, nans = 0, ups = 0, downs = 0, zeros = 0;
  long double max = -kInfinity, min = kInfinity, mean = 0, norm = 0, variance = 0;
  long double finite_max = -kInfinity, finite_min = kInfinity, finite_mean = 0, finite_norm = 0;
};

inline Expected Compute(const TensorView& view) {
  std::vector<long double> values;
  ForEachElement(view, [&](const char* at) {
    for (long double value : Decode(view, at)) values.push_back(value);
  });
  Expected e;
  long double sum = 0, squares = 0, finite_sum = 0, finite_squares = 0;
  for (long double value : values) {
    ++e.count;
    sum += value;
    squares += value * value;
    e.nans += std::isnan(value);
    e.ups += value == kInfinity;
    e.downs += value == -kInfinity;
    e.zeros += value == 0;
    if (value > e.max) e.max = value;
    if (value < e.min) e.min = value;
    if (!std::isfinite(value)) continue;
    ++e.finite;
    finite_sum += value;
    finite_squares += value * value;
    if (value > e.finite_max) e.finite_max = value;
    if (value < e.finite_min) e.finite_min = value;
  }
  if (e.nans) e.max = e.min = kNaN;
  e.mean = sum / e.count;
  e.norm = std::sqrt(squares);
  e.finite_mean = e.finite ? finite_sum / e.finite : 0;
  e.finite_norm = std::sqrt(finite_squares);
  long double deviations = 0;  // not 0 where the mean was rounded
  for (long double value : values) {
    deviations += value - e.mean;
    e.variance += (value - e.mean) * (value - e.mean);
  }
  e.variance = e.variance / e.count - (deviations / e.count) * (deviations / e.count);
  return e;
}

// The elements' bytes in row-major order, lazy bits resolved one element at a time.
inline std::vector<char> Bytes(const TensorView& view) {
  const size_t size = ElementSize(view.dtype);
  const bool complex =
      view.dtype == DType::kComplex32 || view.dtype == DType::kComplex64 || view.dtype == DType::kComplex128;
  const bool floating = complex || view.dtype <= DType::kFloat4E2M1FNX2;
  std::vector<char> out;
  ForEachElement(view, [&](const char* at) {
    std::vector<char> element(at, at + size);
    if (view.negative && !floating) {
      uint64_t word = 0;
      std::memcpy(&word, element.data(), size);
      word = ~word + 1;
      std::memcpy(element.data(), &word, size);
    } else if (complex) {
      if (view.negative) element[size / 2 - 1] = static_cast<char>(element[size / 2 - 1] ^ 0x80);
      if (view.negative != view.conjugate) element[size - 1] = static_cast<char>(element[size - 1] ^ 0x80);
    } else if (view.negative) {
      element[size - 1] = static_cast<char>(element[size - 1] ^ 0x80);
    }
    out.insert(out.end(), element.begin(), element.end());
  });
  return out;
}

}  // namespace msprobe::stats::naive
