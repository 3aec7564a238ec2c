#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/recorder.h"
#include "agent/core/pool.h"
#include "agent/torch/autograd/module_call.h"

namespace msprobe::capture {

// The smallest sequence number of the nodes that used a parameter since its gradient was last accumulated.
using FirstUse = std::atomic<uint64_t>;

// Records the gradients of parameters as they are accumulated: a post-hook on each parameter's AccumulateGrad node.
// Thread-safe; Watch needs no GIL.
class ParameterGradients {
 public:
  explicit ParameterGradients(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}
  ~ParameterGradients();

  // `parameter` belongs to module record name `module`. Called at each forward of the module. Sets one hook for each
  // pair of accumulator and module, because a parameter that modules share is recorded in each of them.
  void Watch(const std::shared_ptr<const std::string>& module, const std::string& name, const at::Tensor& parameter);

  // These nodes used parameters. A gradient is accumulated right after the first of its uses has run backward; the
  // nodes that ran before are recorded before it.
  void NoteUses(const std::vector<ParameterUse>& uses);

 private:
  struct Watched {
    decltype(torch::autograd::Edge::function) accumulator;
    uintptr_t hook = 0;
    std::shared_ptr<FirstUse> first_use;
  };
  struct Accumulator {
    std::shared_ptr<FirstUse> first_use;
    size_t hooks = 0;  // ours, one for each module that has the parameter
  };
  const std::shared_ptr<Recorder> recorder_;
  absl::Mutex mu_;
  using Key = std::pair<const void*, const std::string*>;  // TensorImpl and module
  core::PooledMap<Key, Watched> watched_ ABSL_GUARDED_BY(mu_);
  core::PooledMap<const torch::autograd::Node*, Accumulator> accumulators_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
