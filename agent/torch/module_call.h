#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "agent/torch/api_backward.h"
#include "agent/torch/recorder.h"

namespace msprobe::capture {

// One call of a module, from its entry until its backward has passed.
//
// Backward without touching the graph: the gradients that arrive are seen by pre-hooks on the output tensors' edges; the gradients
// that leave are the sums over the edges that end at the inputs' edges, seen by post-hooks on the nodes between, which are
// those reachable from the outputs whose sequence number was given during the call. So no node is inserted, and
// no gradient is accumulated in another order. Inputs are the tensors requiring grad among the positional arguments, outputs
// those among the results, both nested; as the established tool takes them.
//
// What this cannot separate: a module that returns one of its inputs as it is. Its gradients are then those of the tensor
// itself, from all its consumers.
//
// Threads: Enter and Exit on the calling thread; the hooks on autograd's threads.
class ModuleCall : public std::enable_shared_from_this<ModuleCall> {
 public:
  ModuleCall(std::shared_ptr<Recorder> recorder, OpenRecord forward);

  const OpenRecord& forward() const { return forward_; }
  OpenRecord& forward() { return forward_; }

  // Before the module runs: where its inputs' gradients will leave to.
  void Enter(const std::vector<at::Tensor>& inputs);
  // After it ran: hooks its outputs and the nodes between. Needs grad mode; does nothing without.
  void Exit(const std::vector<at::Tensor>& outputs);

  // Whether `edge` is one of the inputs'.
  bool HasInput(const GradientEdge& edge) const;

  // An API call inside that handed an input back as it is: its gradients are those that leave the module.
  void AddInputAlias(const Api& api, const OpenRecord& forward);
  // An API call outside that handed an output back as it is: its gradients are those that arrive.
  void AddOutputAlias(const Api& api, const OpenRecord& forward);

  // Called by the hooks.
  void GradientArrived(size_t output, const at::Tensor& gradient);
  void GradientLeaves(size_t input, const at::Tensor& gradient);
  // The backward pass has ended: what did not come will not come.
  void Finish();

  // Completes the calls of this thread whose gradients have left and that began after the node of this sequence number,
  // the latest first. That is where the established tool's identity nodes, which stand at the inputs, would have run: behind all
  // of the module, its parameters' gradients included, before anything older. Called before what the node shows is recorded.
  // Without a number: all of them, as the backward pass has ended.
  static void CompleteBehind(std::optional<uint64_t> sequence);

 private:
  struct Alias {
    const Api* api;
    OpenRecord forward;
  };
  struct Leaving {
    size_t expected = 0;
    size_t seen = 0;
    at::Tensor sum;  // our own memory; only while more parts are expected
  };

  void HookInside(const std::vector<GradientEdge>& outputs);
  void Restart();    // another backward over a retained graph
  void Begin();      // emits ENTER with the gradients that arrived
  void Complete();   // emits EXIT with the gradients that left
  bool Reads(const std::vector<Alias>& aliases) const;

  const std::shared_ptr<Recorder> recorder_;
  OpenRecord forward_;
  uint64_t first_sequence_ = 0;
  const uint64_t order_;              // of calls, for those that began at the same sequence number
  std::vector<GradientEdge> inputs_;  // let go at Exit

  std::recursive_mutex mu_;  // guards what follows; the hooks of one backward may run on several device threads
  OpenRecord backward_;
  bool begun_ = false;
  bool done_ = false;
  std::vector<bool> has_arrived_;  // an output each
  size_t arrived_ = 0;
  GradientReadings arriving_;
  std::vector<Leaving> leaving_;  // an input each
  GradientReadings left_;
  std::vector<std::vector<size_t>> direct_;  // output -> inputs it is
  std::vector<Alias> input_aliases_;
  std::vector<Alias> output_aliases_;
};

// The module call that last returned the tensor of this edge as an output; null if none did.
std::shared_ptr<ModuleCall> LastReturning(const GradientEdge& edge);

}  // namespace msprobe::capture
