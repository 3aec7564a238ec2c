#include "server/format/tensor_file/widen.h"

#include <bit>
#include <cmath>
#include <limits>

namespace msprobe::server {
namespace {

// A float of one sign bit, `exponent_bits` with `bias`, and `mantissa_bits`, without special values.
float Finite(uint32_t bits, int exponent_bits, int mantissa_bits, int bias) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const bool negative = (bits >> (mantissa_bits + exponent_bits)) & 1;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                                        : std::ldexp(static_cast<float>(mantissa | 1u << mantissa_bits),
                                                     static_cast<int>(exponent) - bias - mantissa_bits);
  return negative ? -magnitude : magnitude;
}

// The same with IEEE's infinities and NaNs in the highest exponent.
float Ieee(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const uint32_t last = (1u << exponent_bits) - 1;
  if (((bits >> mantissa_bits) & last) == last) {
    if ((bits & ((1u << mantissa_bits) - 1)) != 0) return std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    return (bits >> (mantissa_bits + exponent_bits)) & 1 ? -infinity : infinity;
  }
  return Finite(bits, exponent_bits, mantissa_bits, static_cast<int>(last >> 1));
}

}  // namespace

float WidenToFloat(v1::DType dtype, uint16_t bits) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  switch (dtype) {
    case v1::DTYPE_BFLOAT16:
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_COMPLEX32:
      return Ieee(bits, 5, 10);
    case v1::DTYPE_FLOAT8_E4M3FN:
      return (bits & 0x7F) == 0x7F ? kNan : Finite(bits, 4, 3, 7);
    case v1::DTYPE_FLOAT8_E5M2:
      return Ieee(bits, 5, 2);
    case v1::DTYPE_FLOAT8_E4M3FNUZ:
      return bits == 0x80 ? kNan : Finite(bits, 4, 3, 8);
    case v1::DTYPE_FLOAT8_E5M2FNUZ:
      return bits == 0x80 ? kNan : Finite(bits, 5, 2, 16);
    case v1::DTYPE_FLOAT8_E8M0FNU:
      return bits == 0xFF ? kNan : std::ldexp(1.0f, static_cast<int>(bits) - 127);
    case v1::DTYPE_FLOAT4_E2M1FN_X2:
      return Finite(bits, 2, 1, 1);
    default:
      return kNan;
  }
}

}  // namespace msprobe::server
