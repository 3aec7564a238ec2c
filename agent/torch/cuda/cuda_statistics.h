#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "agent/torch/cuda/cuda_kernels.h"

namespace msprobe::capture {

// A device's kernels, where they may be used: null for other devices than CUDA's, and until they have computed right on
// this one (CudaTrial). Threads: any.
const CudaKernels* CudaKernelsOf(c10::Device device);

// The next step towards that: loads the kernels and launches their trial on a stream of its own, or looks whether the
// trial has come back. One thread calls it again and again, a thread that is never in a hurry and captures no graphs;
// under QuietDispatch. Does nothing for devices that are not CUDA's, or without MSPROBE_CUDA_KERNELS=on.
void TryCudaKernels(c10::Device device) noexcept;

// The kernels are not used again. The reason is logged once. Threads: any.
void RefuseCudaKernels(c10::Device device, const absl::Status& why);

// Whether the kernels can read the tensor where it lies: it has one of their types, is dense in any order of its
// dimensions, and aligned.
bool CudaKernelsTake(const at::Tensor& tensor);

}  // namespace msprobe::capture
