#include "agent/torch/autograd/module_call.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "agent/torch/autograd/autograd_hooks.h"
#include "agent/torch/torch_source.h"

namespace msprobe::capture {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Runs operators of our own unseen: no autograd, no profiler, no Python mode.
class Unseen {
 private:
  at::NoGradGuard no_grad_;
  at::DisableRecordFunctionGuard no_profile_;
  c10::impl::ExcludeDispatchKeyGuard no_python_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

// On the edge of a tensor that modules returned: tells them of its gradient, the outermost module first, as it is the
// outermost that hands the tensor on.
class ReturnedTensorHook final : public UncompiledHook<torch::autograd::FunctionPreHook>, public core::Pooled {
 public:
  explicit ReturnedTensorHook(const GradientEdge& edge)
      : at_{edge.node.get(), edge.index}, sequence_(edge.node->sequence_nr()) {}

  variable_list operator()(const variable_list& gradients) override {
    OpenBackward::EndBehind(sequence_);
    for (size_t i = returns_.size(); i-- > 0;) {
      returns_[i].call->GradientArrived(returns_[i].output, gradients[at_.index], at_);
    }
    return gradients;
  }

  uint32_t index() const { return at_.index; }
  void Add(std::shared_ptr<ModuleCall> call, size_t output) { returns_.push_back({std::move(call), output}); }
  const std::shared_ptr<ModuleCall>& last() const { return returns_.back().call; }

 private:
  struct Return {
    std::shared_ptr<ModuleCall> call;
    size_t output;
  };
  const NodeInput at_;
  const uint64_t sequence_;  // of the node
  absl::InlinedVector<Return, 2> returns_;
};

ReturnedTensorHook* FindHook(const GradientEdge& edge) {
  for (const auto& hook : edge.node->tensor_pre_hooks()) {
    auto* ours = dynamic_cast<ReturnedTensorHook*>(hook.get());
    if (ours != nullptr && ours->index() == edge.index) return ours;
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<ModuleCall> LastReturning(const GradientEdge& edge) {
  const ReturnedTensorHook* hook = FindHook(edge);
  return hook == nullptr ? nullptr : hook->last();
}

ModuleCall::ModuleCall(std::shared_ptr<Recorder> recorder, OpenRecord forward)
    : recorder_(std::move(recorder)), forward_(std::move(forward)) {
  forward_.passes = core::MakePooled<PassCount>();
}

void ModuleCall::Enter(std::span<const at::Tensor> inputs) {
  if (!at::GradMode::is_enabled()) return;
  first_sequence_ = at::sequence_number::peek();
  Entered(first_sequence_);
  for (const at::Tensor& input : inputs) {
    GradientEdge edge = EdgeOf(input);
    if (edge.node == nullptr) continue;
    to_.push_back({edge.node.get(), edge.index});
    inputs_.push_back(std::move(edge));
  }
}

bool ModuleCall::HasInput(const GradientEdge& edge) const {
  return std::find(inputs_.begin(), inputs_.end(), edge) != inputs_.end();
}

void ModuleCall::AddInputAlias(const OpenRecord& forward) {
  const std::lock_guard lock(mu_);
  input_aliases_.push_back(forward);
}

void ModuleCall::AddOutputAlias(const OpenRecord& forward) {
  const std::lock_guard lock(mu_);
  output_aliases_.push_back(forward);
}

std::vector<ParameterUse> ModuleCall::Exit(std::span<const at::Tensor> outputs, bool has_parameters) {
  if (!at::GradMode::is_enabled()) return {};
  GradientEdges edges;
  for (const at::Tensor& output : outputs) {
    GradientEdge edge = EdgeOf(output);
    if (edge.node != nullptr && !output.is_leaf()) edges.push_back(std::move(edge));
  }
  if (edges.empty()) {
    inputs_.clear();
    return {};
  }
  exit_order_ = NextOrder();
  outputs_.resize(edges.size());
  arriving_.resize(edges.size());
  leaving_.resize(inputs_.size());
  left_.resize(inputs_.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    for (size_t j = 0; j < inputs_.size(); ++j) {
      if (!(edges[i] == inputs_[j])) continue;
      outputs_[i].direct.push_back(j);
      outputs_[i].handed_through = true;
    }
  }
  std::vector<ParameterUse> uses;
  if (!inputs_.empty() || edges.size() > 1 || has_parameters) uses = HookInside(edges);
  const bool all_handed_through =
      std::all_of(outputs_.begin(), outputs_.end(), [](const Output& output) { return output.handed_through; });
  for (Output& output : outputs_) {
    if (all_handed_through) {
      output.handed_through = false;
      for (size_t input : output.direct) ++leaving_[input].expected;
    } else {
      output.direct.clear();
    }
  }
  Await();
  const auto self = std::static_pointer_cast<ModuleCall>(shared_from_this());
  for (size_t i = 0; i < edges.size(); ++i) {
    ReturnedTensorHook* hook = FindHook(edges[i]);
    if (hook == nullptr) {
      auto made = std::make_unique<ReturnedTensorHook>(edges[i]);
      hook = made.get();
      edges[i].node->add_tensor_pre_hook(std::move(made));
    }
    hook->Add(self, i);
  }
  inputs_.clear();  // a hook must not keep the graph alive
  return uses;
}

std::vector<ParameterUse> ModuleCall::HookInside(const GradientEdges& outputs) {
  std::vector<ParameterUse> uses;
  absl::flat_hash_set<const Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    // Nodes of before the call are outside; accumulators (the largest number there is) have nothing behind them.
    if (node->sequence_nr() >= first_sequence_ && node->num_outputs() > 0 && seen.insert(node).second)
      open.push_back(node);
  };
  for (const GradientEdge& output : outputs) visit(output.node.get());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    absl::InlinedVector<std::pair<size_t, size_t>, 2> leaves;  // output of the node -> input of the module
    for (size_t i = 0; i < node->num_outputs(); ++i) {
      const torch::autograd::Edge& next = node->next_edge(i);
      if (next.function == nullptr) continue;
      if (next.function->num_outputs() == 0) uses.push_back({next.function.get(), node->sequence_nr()});
      for (size_t k = 0; k < outputs.size(); ++k) {
        if (outputs[k] == GradientEdge{next.function, next.input_nr}) outputs_[k].handed_through = true;
      }
      const auto found = std::find(inputs_.begin(), inputs_.end(), GradientEdge{next.function, next.input_nr});
      if (found == inputs_.end()) {
        visit(next.function.get());
        continue;
      }
      const auto input = static_cast<size_t>(found - inputs_.begin());
      // The same tensor given twice leaves its gradient under its first place.
      leaves.emplace_back(i, input);
      ++leaving_[input].expected;
    }
    if (leaves.empty()) continue;
    node->add_post_hook(MakePostHook([call = std::static_pointer_cast<ModuleCall>(shared_from_this()), leaves](
                                         const variable_list& leaving, const variable_list&) {
      for (const auto& [output, input] : leaves) call->GradientLeaves(input, leaving[output]);
    }));
  }
  return uses;
}

void ModuleCall::Await() {
  state_ = State::kWaiting;
  closed_ = false;
  awaited_ = 0;
  for (Output& output : outputs_) {
    output.has_arrived = false;
    if (!output.handed_through) ++awaited_;
  }
  std::fill(arriving_.begin(), arriving_.end(), std::nullopt);
  std::fill(left_.begin(), left_.end(), std::nullopt);
  for (Leaving& each : leaving_) {
    each.seen = 0;
    each.sum.reset();
  }
}

bool ModuleCall::Reads(const std::vector<OpenRecord>& aliases) const { return backward_.wanted || !aliases.empty(); }

void ModuleCall::GradientArrived(size_t output, const at::Tensor& gradient, const NodeInput& at) {
  if (!recorder_->step().capturing()) return;
  EndAfter(exit_order_);
  const std::lock_guard lock(mu_);
  recorder_->faults().Contain(forward_, [&] {
    Output& arrived = outputs_[output];
    if (arrived.handed_through && state_ >= State::kBegun) return;
    if (state_ == State::kDone) Await();
    if (state_ == State::kWaiting) Start();
    if (gradient.defined() && Reads(output_aliases_)) {
      arriving_[output] = recorder_->Read(RefTo(gradient), backward_.save);
      ResolveSum(*recorder_, at, *arriving_[output]);
    }
    if (!arrived.has_arrived && !arrived.handed_through) --awaited_;
    arrived.has_arrived = true;
    if (awaited_ == 0) Begin();
    for (size_t input : arrived.direct) GradientLeaves(input, gradient);
  });
}

void ModuleCall::Start() {
  state_ = State::kStarted;
  ThreadState& thread = ThreadState::Get();
  backward_ = recorder_->opener().BeginBackward(forward_, thread);
  recorder_->opener().PushModule(thread, nullptr, backward_);
  Open();
}

void ModuleCall::Begin() {
  if (state_ >= State::kBegun) return;
  state_ = State::kBegun;
  if (backward_.wanted) {
    FragmentBuilder& builder = ThreadState::Get().builder;
    FragmentEmitter::Start(backward_, builder);
    if (recorder_->rules().WantsInput(core::Direction::kBackward)) {
      builder.Key("input");
      AddGradients(arriving_, builder);
    }
    recorder_->emitter().Emit(backward_, builder, core::kEnter);
  }
  if (leaving_.empty()) Complete();
  for (const OpenRecord& alias : output_aliases_) EmitBackward(*recorder_, alias, arriving_, arriving_);
}

void ModuleCall::GradientLeaves(size_t input, const at::Tensor& gradient) {
  if (!recorder_->step().capturing()) return;
  const std::lock_guard lock(mu_);
  recorder_->faults().Contain(forward_, [&] {
    if (state_ == State::kWaiting || state_ == State::kDone) return;  // flows to the input without passing the outputs
    Leaving& leaving = leaving_[input];
    ++leaving.seen;
    const bool last = leaving.seen >= leaving.expected;
    if (gradient.defined() && Reads(input_aliases_)) {
      if (leaving.expected == 1) {
        left_[input] = recorder_->Read(RefTo(gradient), backward_.save);
      } else {
        // The engine may add to this memory next, so the sum is in our own. It adds in this order too.
        const Unseen unseen;
        leaving.sum = leaving.sum.defined() ? leaving.sum.add(gradient) : gradient.clone();
      }
    }
    if (!last) return;
    if (leaving.sum.defined()) left_[input] = recorder_->Read(RefTo(leaving.sum), backward_.save);
    leaving.sum.reset();
    if (AllLeft()) WaitForEnd();
  });
}

bool ModuleCall::AllLeft() const {
  return std::all_of(leaving_.begin(), leaving_.end(), [](const Leaving& each) { return each.seen >= each.expected; });
}

bool ModuleCall::CanEnd(bool pass_ended) {
  const std::lock_guard lock(mu_);
  return state_ != State::kWaiting && state_ != State::kDone && (pass_ended || !closed_ || AllLeft());
}

bool ModuleCall::End(bool pass_ended) {
  const std::lock_guard lock(mu_);
  if (pass_ended || AllLeft()) {
    Finish();
    return true;
  }
  Close();
  return false;
}

void ModuleCall::Close() {
  if (closed_) return;
  closed_ = true;
  recorder_->opener().PopModule(ThreadState::Get(), backward_);
}

void ModuleCall::Complete() {
  state_ = State::kDone;
  if (backward_.wanted) {
    FragmentBuilder& builder = ThreadState::Get().builder;
    FragmentEmitter::Start(backward_, builder);
    if (recorder_->rules().WantsOutput(core::Direction::kBackward)) {
      builder.Key("output");
      AddGradients(left_, builder);
    }
    recorder_->emitter().Emit(backward_, builder, core::kExit);
    if (recorder_->rules().WantsOutput(core::Direction::kBackward)) NoteGiven(*recorder_, backward_, left_, 0, to_);
  } else {
    recorder_->emitter().EmitConstructOnly(backward_);
  }
  Close();
  for (const OpenRecord& alias : input_aliases_) EmitBackward(*recorder_, alias, left_, left_);
}

void ModuleCall::Finish() {
  if (state_ == State::kWaiting || state_ == State::kDone) return;
  recorder_->faults().Contain(forward_, [&] {
    for (size_t i = 0; i < leaving_.size(); ++i) {
      if (leaving_[i].sum.defined()) left_[i] = recorder_->Read(RefTo(leaving_[i].sum), backward_.save);
      leaving_[i].sum.reset();
    }
    Begin();
    if (state_ != State::kDone) Complete();
  });
}

}  // namespace msprobe::capture
