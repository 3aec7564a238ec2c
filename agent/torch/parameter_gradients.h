#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "agent/torch/recorder.h"

namespace msprobe::capture {

// Records the gradients of parameters as they are accumulated: a post-hook on each parameter's AccumulateGrad node.
// Thread-safe; Watch needs no GIL.
class ParameterGradients {
 public:
  explicit ParameterGradients(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}
  ~ParameterGradients();

  // `parameter` belongs to module record name `module`. Called at each forward of the module; hooks once an accumulator.
  void Watch(const std::shared_ptr<const std::string>& module, const std::string& name, const at::Tensor& parameter);

 private:
  struct Watched {
    decltype(torch::autograd::Edge::function) accumulator;
    uintptr_t hook = 0;
  };
  const std::shared_ptr<Recorder> recorder_;
  absl::Mutex mu_;
  absl::flat_hash_map<const void*, Watched> watched_ ABSL_GUARDED_BY(mu_);  // by TensorImpl
};

}  // namespace msprobe::capture
