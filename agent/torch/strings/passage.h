#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace msprobe::capture {

// The tensors behind one autograd node that gives gradients on as they come. They have the same memory, which autograd
// does not take for a view, so in-place changes stay allowed. In grad mode; some tensor requires grad.
std::vector<at::Tensor> PassThrough(const std::vector<at::Tensor>& tensors);

}  // namespace msprobe::capture
