#pragma once

#include "msprobe/v1/record.pb.h"
#include "server/analysis/compare/tolerance.h"

namespace msprobe::server {

// What a dtype can hold, and the limits that published standards give for it. docs/checking.md has the sources.
struct DTypeStandard {
  // The format. A number b has an ULP of 2^(max(floor(log2 |b|), min_exponent) - mantissa_bits).
  int mantissa_bits = 0;
  int min_exponent = 0;
  double largest = 0;         // finite
  bool has_infinity = false;  // false: what is too large becomes NaN, or the largest number

  // mindstudio-probe. Values up to small_limit are judged by absolute error, others by relative error.
  double relative_limit = 0;
  double relative_epsilon = 0;  // added to |b| under a relative error
  double small_limit = 0;
  double threshold_small_error = 0;  // of the absolute threshold standard
  double benchmark_small_error = 0;  // of the benchmark standard
  double accumulative_bound = 0;
  double accumulative_balance = 0;
  double ratio_floor = 0;      // the smallest divisor of a ratio of errors
  double ulp_count_limit = 0;  // ULPs over which an element counts

  Tolerance torch;            // torch.testing.assert_close
  double cann_threshold = 0;  // CANN's community standard: MERE under it, MARE under ten times of it
};

// Null: not a floating dtype. Complex dtypes have the standard of their parts.
const DTypeStandard* StandardOf(v1::DType dtype);

}  // namespace msprobe::server
