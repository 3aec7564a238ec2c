#pragma once

#include <cstdint>

#include "agent/stats/distribution.h"
#include "agent/stats/executor.h"
#include "agent/stats/quantisation.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// The result of one pass over a tensor. Elements count as doubles: complex ones by their absolute value, quantized ones
// by their dequantised value. If any element is NaN, so are max, min, mean and norm. Infinities follow IEEE arithmetic
// ([1, inf, -inf] gives max inf, min -inf, mean NaN, norm inf).
struct Statistics {
  bool computed = false;  // false: no elements, or a dtype without numbers (kOther). Then everything else is 0
  bool is_integer =
      false;  // integer and bool dtypes: integer_max and integer_min are set; max and min are their doubles
  double max = 0;
  double min = 0;
  double mean = 0;
  double norm = 0;          // L2
  double variance = 0;      // population: mean of squared deviations
  int64_t integer_max = 0;  // kUInt64: the bits of a uint64_t. kBool: max is any(), min is all()
  int64_t integer_min = 0;
  uint64_t nan_count = 0;
  uint64_t positive_inf_count = 0;
  uint64_t negative_inf_count = 0;
  uint64_t zero_count = 0;  // +0 and -0
  // The same over the finite elements; has_finite: there is at least one.
  bool has_finite = false;
  double finite_max = 0;
  double finite_min = 0;
  double finite_mean = 0;
  double finite_norm = 0;
};

// What the same pass makes beside the statistics; null: it is not wanted.
struct SamePass {
  // How the elements are spread. Gathered on the caller's thread alone. Floating dtypes have one.
  Distribution* distribution = nullptr;
  // What these formats would lose. Gathered on the caller's thread alone, in row-major order; those that need the
  // tensor's largest magnitude by reading it once more. Floating dtypes lose something.
  Quantisation* quantisation = nullptr;
  Quantisation::Formats formats = 0;
  // Crc32(view).
  uint32_t* crc32 = nullptr;
  // WriteSigns(view): SignBytes(view.element_count()) bytes. Nothing is written for a dtype without signs.
  uint8_t* signs = nullptr;
};

// Computes all statistics in one fused pass over any layout.
//
// 1. Sum and norm of a finite fp16, bf16 or fp32 tensor never overflow: accumulators are doubles.
// 2. fp16 and bf16: groups of 32 elements are first added up in floats, the same 32 in the same order on every machine.
//    So the mean is within 2^-21 of the elements' size, the norm within 2^-21 of itself, the variance within 2^-16.
// 3. It reads each element once. Only if a sum is not finite or cancels, it reads elements again.
// 4. Equal input gives equal results on one machine. Nothing is allocated for up to 8 dimensions.
// 5. `executor`, where given, read parts of a dense floating-point tensor of at least kSharedBytes. The result is the
//    same to the bit: the sums of blocks are added up in one order, whoever made them.
// 6. Checksum and signs come from each block while it is in the cache, and from the same thread, where the elements are
//    floats of 16 to 64 bits one behind the other; else from a pass of their own.
// Threads: any.
Statistics ComputeStatistics(const TensorView& view, Executor* executor = nullptr, const SamePass& same_pass = {});

// Whether the elements are floats of 16 to 64 bits that lie one behind the other.
bool HasPlainFloats(const TensorView& view);

// Smaller tensors are read before another thread would be awake (some 20 to 50 microseconds on a virtual machine).
inline constexpr size_t kSharedBytes = size_t{2} << 20;

}  // namespace msprobe::stats
