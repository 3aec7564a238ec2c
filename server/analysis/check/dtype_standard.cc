#include "server/analysis/check/dtype_standard.h"

#include <limits>

namespace msprobe::server {
namespace {

constexpr DTypeStandard kFloat64 = {.mantissa_bits = 52,
                                    .min_exponent = -1022,
                                    .largest = std::numeric_limits<double>::max(),
                                    .has_infinity = true,
                                    .relative_limit = 0x1p-20,
                                    .relative_epsilon = 0x1p-52,
                                    .small_limit = 0x1p-20,
                                    .threshold_small_error = 0x1p-30,
                                    .benchmark_small_error = 0x1p-30,
                                    .accumulative_bound = 0x1p-11,
                                    .accumulative_balance = 0x1p-14,
                                    .ratio_floor = 0x1p-14,
                                    .ulp_count_limit = 32,
                                    .torch = {1e-7, 1e-7},
                                    .cann_threshold = 0x1p-13};
constexpr DTypeStandard kFloat32 = {.mantissa_bits = 23,
                                    .min_exponent = -126,
                                    .largest = std::numeric_limits<float>::max(),
                                    .has_infinity = true,
                                    .relative_limit = 0x1p-20,
                                    .relative_epsilon = 0x1p-52,
                                    .small_limit = 0x1p-20,
                                    .threshold_small_error = 0x1p-30,
                                    .benchmark_small_error = 0x1p-30,
                                    .accumulative_bound = 0x1p-11,
                                    .accumulative_balance = 0x1p-14,
                                    .ratio_floor = 0x1p-14,
                                    .ulp_count_limit = 32,
                                    .torch = {1.3e-6, 1e-5},
                                    .cann_threshold = 0x1p-13};
constexpr DTypeStandard kFloat16 = {.mantissa_bits = 10,
                                    .min_exponent = -14,
                                    .largest = 65504,
                                    .has_infinity = true,
                                    .relative_limit = 0x1p-10,
                                    .relative_epsilon = 0x1p-23,
                                    .small_limit = 0x1p-10,
                                    .threshold_small_error = 0x1p-16,
                                    .benchmark_small_error = 1e-16,
                                    .accumulative_bound = 0x1p-8,
                                    .accumulative_balance = 0x1p-20,
                                    .ratio_floor = 0x1p-11,
                                    .ulp_count_limit = 1,
                                    .torch = {1e-3, 1e-5},
                                    .cann_threshold = 0x1p-10};
constexpr DTypeStandard kBfloat16 = {.mantissa_bits = 7,
                                     .min_exponent = -126,
                                     .largest = 0x1.FEp127,
                                     .has_infinity = true,
                                     .relative_limit = 0x1p-8,
                                     .relative_epsilon = 0x1p-8,
                                     .small_limit = 0x1p-10,
                                     .threshold_small_error = 1e-16,
                                     .benchmark_small_error = 1e-16,
                                     .accumulative_bound = 0x1p-7,
                                     .accumulative_balance = 0x1p-7,
                                     .ratio_floor = 0x1p-8,
                                     .ulp_count_limit = 1,
                                     .torch = {1.6e-2, 1e-5},
                                     .cann_threshold = 0x1p-7};

constexpr DTypeStandard Float8(int mantissa_bits, int min_exponent, double largest, bool has_infinity) {
  DTypeStandard standard = kFloat16;
  standard.mantissa_bits = mantissa_bits;
  standard.min_exponent = min_exponent;
  standard.largest = largest;
  standard.has_infinity = has_infinity;
  const double step = mantissa_bits == 3 ? 0x1p-3 : mantissa_bits == 2 ? 0x1p-2 : 1;
  standard.torch = {step, step / 4};
  standard.cann_threshold = step;
  return standard;
}

constexpr DTypeStandard kFloat8E4M3fn = Float8(3, -6, 448, false);
constexpr DTypeStandard kFloat8E4M3fnuz = Float8(3, -7, 240, false);
constexpr DTypeStandard kFloat8E5M2 = Float8(2, -14, 57344, true);
constexpr DTypeStandard kFloat8E5M2fnuz = Float8(2, -15, 57344, false);
constexpr DTypeStandard kFloat8E8M0fnu = Float8(0, -127, 0x1p127, false);

}  // namespace

const DTypeStandard* StandardOf(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT64:
    case v1::DTYPE_COMPLEX128:
      return &kFloat64;
    case v1::DTYPE_FLOAT32:
    case v1::DTYPE_COMPLEX64:
      return &kFloat32;
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_COMPLEX32:
      return &kFloat16;
    case v1::DTYPE_BFLOAT16:
      return &kBfloat16;
    case v1::DTYPE_FLOAT8_E4M3FN:
      return &kFloat8E4M3fn;
    case v1::DTYPE_FLOAT8_E4M3FNUZ:
      return &kFloat8E4M3fnuz;
    case v1::DTYPE_FLOAT8_E5M2:
      return &kFloat8E5M2;
    case v1::DTYPE_FLOAT8_E5M2FNUZ:
      return &kFloat8E5M2fnuz;
    case v1::DTYPE_FLOAT8_E8M0FNU:
      return &kFloat8E8M0fnu;
    default:
      return nullptr;
  }
}

}  // namespace msprobe::server
