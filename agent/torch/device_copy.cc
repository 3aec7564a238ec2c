#include "agent/torch/device_copy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace msprobe::capture {

at::Tensor CopyToHost(const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  at::DisableRecordFunctionGuard no_profile;
  c10::impl::ExcludeDispatchKeyGuard no_python(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  return tensor.detach().to(c10::kCPU);
}

}  // namespace msprobe::capture
