#pragma once

#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace msprobe::capture {

// While it lives, operators that this thread runs go straight to the kernels of a device: no autograd, autocast,
// functorch, named tensors, modes or tensor subclasses, no lazy conj and neg, no profiler, no inference mode. All of
// these see nothing of the operators, and no Python runs.
class QuietDispatch {
 private:
  static constexpr c10::DispatchKeySet kBelowPython{c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python};
  static constexpr c10::DispatchKeySet kExcluded = c10::DispatchKeySet(c10::DispatchKeySet::FULL) - kBelowPython;

  const at::DisableRecordFunctionGuard no_profile_;
  const c10::InferenceMode no_inference_{false};
  const c10::impl::ExcludeDispatchKeyGuard excluded_{kExcluded};
};

}  // namespace msprobe::capture
