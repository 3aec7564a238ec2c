#pragma once

#include "agent/stats/kernels.h"
#include "agent/stats/statistics.h"

namespace msprobe::stats {

// ComputeStatistics with the given kernels, which this machine must support. crc32, where given: as
// ComputeStatisticsAndCrc32.
Statistics ComputeStatisticsWith(const TensorView& view, const Kernels& kernels, Executor* executor = nullptr,
                                 Distribution* distribution = nullptr, uint32_t* crc32 = nullptr);

}  // namespace msprobe::stats
