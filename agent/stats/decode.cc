#include "agent/stats/decode.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace msprobe::stats {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr double PowerOfTwo(int exponent) {
  double power = 1;
  for (; exponent > 0; --exponent) power *= 2;
  for (; exponent < 0; ++exponent) power /= 2;
  return power;
}

// A finite value in a format with `mantissa` mantissa bits and this exponent bias.
constexpr double Compose(bool negative, int exponent, int fraction, int mantissa, int bias) {
  const double significand = exponent == 0 ? fraction : fraction + (1 << mantissa);
  const double value = significand * PowerOfTwo((exponent == 0 ? 1 : exponent) - bias - mantissa);
  return negative ? -value : value;
}

constexpr double ComposeFloat8(DType dtype, int bits) {
  const bool negative = (bits & 0x80) != 0;
  const int magnitude = bits & 0x7f;
  switch (dtype) {
    case DType::kFloat8E4M3FN:
      return magnitude == 0x7f ? kNaN : Compose(negative, magnitude >> 3, magnitude & 7, 3, 7);
    case DType::kFloat8E4M3FNUZ:
      return bits == 0x80 ? kNaN : Compose(negative, magnitude >> 3, magnitude & 7, 3, 8);
    case DType::kFloat8E5M2:
      if (magnitude > 0x7c) return kNaN;
      if (magnitude == 0x7c) return negative ? -kInfinity : kInfinity;
      return Compose(negative, magnitude >> 2, magnitude & 3, 2, 15);
    case DType::kFloat8E5M2FNUZ:
      return bits == 0x80 ? kNaN : Compose(negative, magnitude >> 2, magnitude & 3, 2, 16);
    default:  // kFloat8E8M0FNU
      return bits == 0xff ? kNaN : PowerOfTwo(bits - 127);
  }
}

constexpr std::array<double, 256> MakeTable(DType dtype) {
  std::array<double, 256> table{};
  for (int bits = 0; bits < 256; ++bits) table[bits] = ComposeFloat8(dtype, bits);
  return table;
}

constexpr std::array<double, 256> kE4M3FN = MakeTable(DType::kFloat8E4M3FN);
constexpr std::array<double, 256> kE5M2 = MakeTable(DType::kFloat8E5M2);
constexpr std::array<double, 256> kE4M3FNUZ = MakeTable(DType::kFloat8E4M3FNUZ);
constexpr std::array<double, 256> kE5M2FNUZ = MakeTable(DType::kFloat8E5M2FNUZ);
constexpr std::array<double, 256> kE8M0FNU = MakeTable(DType::kFloat8E8M0FNU);
constexpr double kE2M1[16] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

const std::array<double, 256>& Table(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN:
      return kE4M3FN;
    case DType::kFloat8E5M2:
      return kE5M2;
    case DType::kFloat8E4M3FNUZ:
      return kE4M3FNUZ;
    case DType::kFloat8E5M2FNUZ:
      return kE5M2FNUZ;
    default:
      return kE8M0FNU;
  }
}

double WidenFloat16(uint16_t bits) { return DecodeFloat16(bits); }
double WidenFloat32(float value) { return value; }
double WidenFloat64(double value) { return value; }

// Squares of halves and floats neither overflow nor vanish in double.
template <typename Part, typename Widen>
void AbsoluteNarrow(const Part* parts, size_t count, Widen widen, double* out) {
  bool special = false;
  for (size_t i = 0; i < count; ++i) {
    const double real = widen(parts[2 * i]);
    const double imaginary = widen(parts[2 * i + 1]);
    out[i] = std::sqrt(real * real + imaginary * imaginary);
    special |= out[i] != out[i];
  }
  if (!special) return;
  for (size_t i = 0; i < count; ++i) {  // |inf + nan i| is inf
    if (std::isinf(widen(parts[2 * i])) || std::isinf(widen(parts[2 * i + 1]))) out[i] = kInfinity;
  }
}

void AbsoluteWide(const double* parts, size_t count, double* out) {
  constexpr double kSafeMin = 0x1p-480;
  constexpr double kSafeMax = 0x1p500;
  for (size_t i = 0; i < count; ++i) {
    const double real = std::fabs(WidenFloat64(parts[2 * i]));
    const double imaginary = std::fabs(WidenFloat64(parts[2 * i + 1]));
    const double larger = real > imaginary ? real : imaginary;
    const bool safe = larger > kSafeMin && larger < kSafeMax && imaginary <= kSafeMax;
    out[i] = safe ? std::sqrt(real * real + imaginary * imaginary) : std::hypot(real, imaginary);
  }
}

template <typename Integer>
void Dequantise(const Integer* elements, size_t count, double zero_point, double scale, double* out) {
  for (size_t i = 0; i < count; ++i) out[i] = (static_cast<double>(elements[i]) - zero_point) * scale;
}

// Differences are modulo 2^64, so that the distance from the smallest element is exact for every type.
template <typename Integer>
void Distance(const Integer* elements, size_t count, int64_t origin, double* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<double>(static_cast<uint64_t>(elements[i]) - static_cast<uint64_t>(origin));
  }
}

}  // namespace

double DecodeFloat16(uint16_t bits) {
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  uint32_t word = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7c00) == 0x7c00) word |= 0x7f800000u;
  word |= (bits & 0x8000u) << 16;
  return std::bit_cast<float>(word);
}

double DecodeBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

double DecodeFloat8(DType dtype, uint8_t bits) { return Table(dtype)[bits]; }

double DecodeFloat4(uint8_t nibble) { return kE2M1[nibble & 15]; }

size_t ValuesPerElement(DType dtype) { return dtype == DType::kFloat4E2M1FNX2 ? 2 : 1; }

void DecodeToDouble(const TensorView& view, const void* elements, size_t count, int64_t origin, double* out) {
  const auto* bytes = static_cast<const uint8_t*>(elements);
  const auto* halves = static_cast<const uint16_t*>(elements);
  switch (view.dtype) {
    case DType::kFloat64:
      std::memcpy(out, elements, count * sizeof(double));
      return;
    case DType::kFloat32:
      for (size_t i = 0; i < count; ++i) out[i] = static_cast<const float*>(elements)[i];
      return;
    case DType::kFloat16:
      for (size_t i = 0; i < count; ++i) out[i] = DecodeFloat16(halves[i]);
      return;
    case DType::kBFloat16:
      for (size_t i = 0; i < count; ++i) out[i] = DecodeBFloat16(halves[i]);
      return;
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU: {
      const std::array<double, 256>& table = Table(view.dtype);
      for (size_t i = 0; i < count; ++i) out[i] = table[bytes[i]];
      return;
    }
    case DType::kFloat4E2M1FNX2:
      for (size_t i = 0; i < count; ++i) {
        out[2 * i] = kE2M1[bytes[i] & 15];
        out[2 * i + 1] = kE2M1[bytes[i] >> 4];
      }
      return;
    case DType::kComplex32:
      return AbsoluteNarrow(halves, count, WidenFloat16, out);
    case DType::kComplex64:
      return AbsoluteNarrow(static_cast<const float*>(elements), count, WidenFloat32, out);
    case DType::kComplex128:
      return AbsoluteWide(static_cast<const double*>(elements), count, out);
    case DType::kQInt8:
      return Dequantise(static_cast<const int8_t*>(elements), count, static_cast<double>(view.zero_point), view.scale,
                        out);
    case DType::kQUInt8:
      return Dequantise(bytes, count, static_cast<double>(view.zero_point), view.scale, out);
    case DType::kQInt32:
      return Dequantise(static_cast<const int32_t*>(elements), count, static_cast<double>(view.zero_point), view.scale,
                        out);
    case DType::kInt8:
      return Distance(static_cast<const int8_t*>(elements), count, origin, out);
    case DType::kUInt8:
      return Distance(bytes, count, origin, out);
    case DType::kInt16:
      return Distance(static_cast<const int16_t*>(elements), count, origin, out);
    case DType::kUInt16:
      return Distance(halves, count, origin, out);
    case DType::kInt32:
      return Distance(static_cast<const int32_t*>(elements), count, origin, out);
    case DType::kUInt32:
      return Distance(static_cast<const uint32_t*>(elements), count, origin, out);
    case DType::kInt64:
      return Distance(static_cast<const int64_t*>(elements), count, origin, out);
    case DType::kUInt64:
      return Distance(static_cast<const uint64_t*>(elements), count, origin, out);
    case DType::kBool:
    case DType::kUnspecified:
    case DType::kOther:
      return;
  }
}

}  // namespace msprobe::stats
