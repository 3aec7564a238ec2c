#pragma once

#include "agent/stats/kernels.h"
#include "agent/stats/statistics.h"

namespace msprobe::stats {

// ComputeStatistics with the given kernels, which this machine must support.
Statistics ComputeStatisticsWith(const TensorView& view, const Kernels& kernels, Executor* executor = nullptr,
                                 const SamePass& same_pass = {});

}  // namespace msprobe::stats
