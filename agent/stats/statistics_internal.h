#pragma once

#include "agent/stats/kernels.h"
#include "agent/stats/statistics.h"

namespace msprobe::stats {

// ComputeStatistics by the kernels of a chosen level, which must be one this machine supports.
Statistics ComputeStatisticsWith(const TensorView& view, const Kernels& kernels);

}  // namespace msprobe::stats
