#pragma once

#include <ATen/core/Tensor.h>

#include "agent/capture/reading/remembered_statistics.h"

namespace msprobe::capture {

// What torch knows of a host tensor's memory: that of its storage, if torch's own allocator gave it. A leaf that
// requires grad lasts. In grad mode, or while it has a gradient, it is about to change, by an optimizer.
RememberedStatistics::Memory MemoryOf(const at::Tensor& tensor);

}  // namespace msprobe::capture
