#pragma once

#include "agent/core/config/config.h"
#include "agent/core/record.h"
#include "agent/stats/statistics.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// Puts statistics into a leaf; nothing where none were computed.
void SetNumbers(const stats::Statistics& from, core::Leaf& leaf);

// Reads host memory as the summary mode says: statistics, and the checksum it names. `is_scalar`: a 0-D tensor, which
// shows its value beside whatever checksum. `executor`: as ComputeStatistics.
void ReadNumbers(const stats::TensorView& view, core::SummaryMode mode, bool is_scalar, core::Leaf& leaf,
                 stats::Executor* executor = nullptr);

}  // namespace msprobe::capture
