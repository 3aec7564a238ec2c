#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "agent/capture/recorder.h"
#include "agent/torch/autograd/api_backward.h"
#include "agent/torch/autograd/gradient_sums.h"
#include "agent/torch/autograd/open_backward.h"

namespace msprobe::capture {

// A node that used a parameter.
struct ParameterUse {
  const torch::autograd::Node* accumulator = nullptr;  // of the parameter's gradient
  uint64_t sequence = 0;                               // of the node
};

// One call of a module, from its entry until its backward has passed.
//
// Backward without touching the graph: the gradients that arrive are seen by pre-hooks on the output tensors' edges;
// the gradients that leave are the sums over the edges that end at the inputs' edges, seen by post-hooks on the nodes
// between, which are those reachable from the outputs whose sequence number was given during the call. So no node is
// inserted, and no gradient is accumulated in another order. Inputs are the tensors requiring grad among the positional
// arguments, outputs those among the results, both nested; as mindstudio-probe takes them.
//
// An output is handed through if it is an input as it is, or if the module goes on to use it for another of its
// outputs. What the module's own use adds to such a gradient cannot be told from what arrives from outside, so the
// module waits only for its other outputs, and the gradient is recorded only if it comes before those: then it came
// from outside alone. Where every output of a module is handed through, its gradients are the whole gradients of those
// tensors, from all consumers.
//
// Threads: Enter and Exit on the calling thread; the hooks on autograd's threads.
class ModuleCall final : public OpenBackward {
 public:
  ModuleCall(std::shared_ptr<Recorder> recorder, OpenRecord forward);

  const OpenRecord& forward() const { return forward_; }
  OpenRecord& forward() { return forward_; }

  // Before the module runs: where its inputs' gradients will leave to.
  void Enter(std::span<const at::Tensor> inputs);
  // After it ran: hooks its outputs and the nodes between. Needs grad mode; does nothing without. Gives the uses of
  // parameters inside, as far as it has to look: for modules that have inputs requiring grad, or parameters.
  std::vector<ParameterUse> Exit(std::span<const at::Tensor> outputs, bool has_parameters);

  // Whether `edge` is one of the inputs'.
  bool HasInput(const GradientEdge& edge) const;

  // An API call inside that handed an input back as it is: its gradients are those that leave the module.
  void AddInputAlias(const OpenRecord& forward);
  // An API call outside that handed an output back as it is: its gradients are those that arrive.
  void AddOutputAlias(const OpenRecord& forward);

  // Called by the hooks. GradientArrived first completes what began after this module had ended. at: where it arrived.
  void GradientArrived(size_t output, const at::Tensor& gradient, const NodeInput& at);
  void GradientLeaves(size_t input, const at::Tensor& gradient);

 private:
  using GradientEdges = absl::InlinedVector<GradientEdge, 2>;
  // Where the backward of the module is. Another backward over a retained graph begins at kWaiting again.
  enum class State : uint8_t {
    kWaiting,  // for the first gradient
    kStarted,  // it is here: the record is begun, and is the parent of others
    kBegun,    // all the gradients that are awaited have arrived: ENTER is emitted
    kDone,     // EXIT is emitted
  };
  struct Output {
    bool handed_through = false;
    bool has_arrived = false;
    absl::InlinedVector<size_t, 1> direct;  // the inputs that it is, where their gradients are its own
  };
  struct Leaving {
    size_t expected = 0;
    size_t seen = 0;
    at::Tensor sum;  // our own memory; only while more parts are expected
  };

  std::vector<ParameterUse> HookInside(const GradientEdges& outputs);
  void Await();     // kWaiting, with no gradient arrived
  void Start();     // to kStarted
  void Begin();     // to kBegun: emits ENTER with the gradients that arrived
  void Complete();  // to kDone: emits EXIT with the gradients that left
  void Finish();    // to kDone, with the gradients that have left so far
  void Close();     // is no parent any more
  bool AllLeft() const;
  // All of the module has run where gradients have left to all its inputs, or to none ever can. That is where the
  // mindstudio-probe's identity nodes, which stand at the inputs, would have run: behind all of the module, its
  // parameters' gradients included, before anything older. Others only stop being parents.
  bool CanEnd(bool pass_ended) override;
  bool End(bool pass_ended) override;
  bool Reads(const std::vector<OpenRecord>& aliases) const;

  const std::shared_ptr<Recorder> recorder_;
  OpenRecord forward_;
  uint64_t first_sequence_ = 0;
  uint64_t exit_order_ = 0;  // of calls
  GradientEdges inputs_;     // let go at Exit

  std::recursive_mutex mu_;  // guards what follows; the hooks of one backward may run on several device threads
  OpenRecord backward_;
  State state_ = State::kWaiting;
  bool closed_ = false;
  absl::InlinedVector<Output, 1> outputs_;
  size_t awaited_ = 0;                       // outputs that did not arrive, of those not handed through
  GradientReadings arriving_;                // an output each
  absl::InlinedVector<Leaving, 1> leaving_;  // an input each
  absl::InlinedVector<NodeInput, 2> to_;     // an input each: where its gradient goes
  GradientReadings left_;                    // an input each
  std::vector<OpenRecord> input_aliases_;
  std::vector<OpenRecord> output_aliases_;
};

// The module call that last returned the tensor of this edge as an output; null if none did.
std::shared_ptr<ModuleCall> LastReturning(const GradientEdge& edge);

}  // namespace msprobe::capture
