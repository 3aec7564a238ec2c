#include "agent/capture/reading/leaf_numbers.h"

#include "agent/stats/checksum.h"

namespace msprobe::capture {

void SetNumbers(const stats::Statistics& from, core::Leaf& leaf) {
  if (!from.computed) return;
  leaf.has_statistics = true;
  leaf.is_integer = from.is_integer;
  leaf.max = from.max;
  leaf.min = from.min;
  leaf.mean = from.mean;
  leaf.norm = from.norm;
  leaf.variance = from.variance;
  leaf.integer_max = from.integer_max;
  leaf.integer_min = from.integer_min;
  leaf.zero_count = from.zero_count;
  leaf.nan_count = from.nan_count;
  leaf.positive_inf_count = from.positive_inf_count;
  leaf.negative_inf_count = from.negative_inf_count;
  leaf.has_finite = from.has_finite;
  leaf.finite_max = from.finite_max;
  leaf.finite_min = from.finite_min;
  leaf.finite_mean = from.finite_mean;
  leaf.finite_norm = from.finite_norm;
}

void ReadNumbers(const stats::TensorView& view, core::SummaryMode mode, bool is_scalar, core::Leaf& leaf,
                 stats::Executor* executor) {
  if (mode == core::SummaryMode::kXor) {
    leaf.xor64 = stats::Xor64(view);
    if (is_scalar) SetNumbers(stats::ComputeStatistics(view), leaf);
    return;
  }
  if (mode == core::SummaryMode::kMd5) {
    SetNumbers(stats::ComputeStatistics(view, executor, {.crc32 = &leaf.crc32.emplace()}), leaf);
  } else {
    SetNumbers(stats::ComputeStatistics(view, executor), leaf);
  }
}

}  // namespace msprobe::capture
