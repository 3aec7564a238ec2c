#pragma once

#include <ATen/core/Tensor.h>

namespace msprobe::capture {

// The elements of a device's tensor on the host. Waits for the device. No autograd, no profiler, no mode notices.
at::Tensor CopyToHost(const at::Tensor& tensor);

}  // namespace msprobe::capture
