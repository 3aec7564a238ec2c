#pragma once

#include <cstdint>

#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// What one pass over a tensor finds. Floating values are of the elements widened to double (complex: their absolute
// values; quantized: dequantised). A NaN among the elements makes max, min, mean and norm NaN; infinities propagate as
// IEEE arithmetic has it ([1, inf, -inf]: max inf, min -inf, mean NaN, norm inf).
struct Statistics {
  bool computed = false;    // false: no element, or a dtype without numbers (kOther); everything else is then 0
  bool is_integer = false;  // integer and bool dtypes: integer_max and integer_min hold, max and min are them as double
  double max = 0;
  double min = 0;
  double mean = 0;
  double norm = 0;          // L2
  double variance = 0;      // population: mean of squared deviations
  int64_t integer_max = 0;  // kUInt64: the same bits as uint64_t; kBool: any and all, 0 or 1
  int64_t integer_min = 0;
  uint64_t nan_count = 0;
  uint64_t positive_inf_count = 0;
  uint64_t negative_inf_count = 0;
  uint64_t zero_count = 0;  // +0 and -0
  // Over the finite elements; has_finite is false when there is none. Equal to the above when all are finite.
  bool has_finite = false;
  double finite_max = 0;
  double finite_min = 0;
  double finite_mean = 0;
  double finite_norm = 0;
};

// One fused pass in any layout. Accumulators are wide enough that no finite fp16, bf16 or fp32 tensor overflows its
// sum or norm: doubles, but for fp16 and bf16, of which 32 elements are first added up in floats (the same 32 on every
// machine, rounding in the same order): their mean is within 2^-21 of the elements' size, their norm within 2^-21 and
// their variance within 2^-16 of itself. Reads each element once (again only where a non-finite or cancelling sum makes
// it necessary). Deterministic for equal input and machine. Thread-safe; allocates nothing for up to 8 dimensions.
Statistics ComputeStatistics(const TensorView& view);

}  // namespace msprobe::stats
