#pragma once

#include <ATen/core/Tensor.h>

#include "agent/capture/edges/tensor_identity.h"

namespace msprobe::capture {

// The memory that a tensor shows now. Without a storage for a tensor that has none of its own: sparse, nested, of a
// subclass that runs Python, inside a transformation of torch.func. Without a version for inference tensors, which have
// none. Runs no operator; the storage's data is not touched.
TensorIdentity IdentityOf(const at::Tensor& tensor);

}  // namespace msprobe::capture
