#pragma once

#include <cstddef>
#include <vector>

#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// TensorSource::Sample of host memory whose elements lie side by side, in order.
std::vector<double> SampleDense(const stats::TensorView& view, size_t most);

}  // namespace msprobe::capture
