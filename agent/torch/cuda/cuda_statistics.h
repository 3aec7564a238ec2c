#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "agent/torch/cuda/cuda_kernels.h"

namespace msprobe::capture {

// A device's kernels, where they may be used: null for other devices than CUDA's, and until they have computed right on
// this one (CudaTrial). Threads: any.
const CudaKernels* CudaKernelsOf(c10::Device device);

// Goes on towards that: loads the kernels and launches their trial on a stream of its own, or sees whether it has come
// back. To be called over and over by one thread, which neither has something to do in time nor captures graphs; under
// QuietDispatch. Nothing for other devices than CUDA's, and with MSPROBE_CUDA_KERNELS=off.
void TryCudaKernels(c10::Device device) noexcept;

// They are not used again; why is logged once. Threads: any.
void RefuseCudaKernels(c10::Device device, const absl::Status& why);

// Whether the kernels can read it where it lies: a type that they have, dense in any order of its dimensions, aligned.
bool CudaKernelsTake(const at::Tensor& tensor);

}  // namespace msprobe::capture
