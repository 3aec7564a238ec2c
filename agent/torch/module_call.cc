#include "agent/torch/module_call.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "agent/torch/autograd_hooks.h"

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
class ReturnedTensorHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit ReturnedTensorHook(uint32_t index) : index_(index) {}

  variable_list operator()(const variable_list& gradients) override {
    for (size_t i = returns_.size(); i-- > 0;) returns_[i].call->GradientArrived(returns_[i].output, gradients[index_]);
    return gradients;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}

  uint32_t index() const { return index_; }
  void Add(std::shared_ptr<ModuleCall> call, size_t output) { returns_.push_back({std::move(call), output}); }
  const std::shared_ptr<ModuleCall>& last() const { return returns_.back().call; }

 private:
  struct Return {
    std::shared_ptr<ModuleCall> call;
    size_t output;
  };
  const uint32_t index_;
  std::vector<Return> returns_;
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
    : recorder_(std::move(recorder)), forward_(std::move(forward)) {}

void ModuleCall::Enter(const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return;
  first_sequence_ = at::sequence_number::peek();
  for (const at::Tensor& input : inputs) {
    GradientEdge edge = EdgeOf(input);
    if (edge.node != nullptr) inputs_.push_back(std::move(edge));
  }
}

bool ModuleCall::HasInput(const GradientEdge& edge) const {
  return std::find(inputs_.begin(), inputs_.end(), edge) != inputs_.end();
}

void ModuleCall::AddInputAlias(const Api& api, const OpenRecord& forward) {
  const std::lock_guard lock(mu_);
  input_aliases_.push_back({&api, forward});
}

void ModuleCall::AddOutputAlias(const Api& api, const OpenRecord& forward) {
  const std::lock_guard lock(mu_);
  output_aliases_.push_back({&api, forward});
}

void ModuleCall::Exit(const std::vector<at::Tensor>& outputs) {
  if (!at::GradMode::is_enabled()) return;
  std::vector<GradientEdge> edges;
  for (const at::Tensor& output : outputs) {
    GradientEdge edge = EdgeOf(output);
    if (edge.node != nullptr && !output.is_leaf()) edges.push_back(std::move(edge));
  }
  if (edges.empty()) {
    inputs_.clear();
    return;
  }
  arriving_.resize(edges.size());
  leaving_.resize(inputs_.size());
  direct_.resize(edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    for (size_t j = 0; j < inputs_.size(); ++j) {
      if (!(edges[i] == inputs_[j])) continue;
      direct_[i].push_back(j);
      ++leaving_[j].expected;
    }
  }
  HookInside(edges);
  for (size_t i = 0; i < edges.size(); ++i) {
    ReturnedTensorHook* hook = FindHook(edges[i]);
    if (hook == nullptr) {
      auto made = std::make_unique<ReturnedTensorHook>(edges[i].index);
      hook = made.get();
      edges[i].node->add_tensor_pre_hook(std::move(made));
    }
    hook->Add(shared_from_this(), i);
  }
  inputs_.clear();  // a hook must not keep the graph alive
}

void ModuleCall::HookInside(const std::vector<GradientEdge>& outputs) {
  if (inputs_.empty()) return;
  absl::flat_hash_set<const Node*> seen;
  std::vector<Node*> open;
  const auto visit = [&](Node* node) {
    // Nodes of before the call are outside; accumulators (the largest number there is) have nothing behind them.
    if (node->sequence_nr() >= first_sequence_ && node->num_outputs() > 0 && seen.insert(node).second) open.push_back(node);
  };
  for (const GradientEdge& output : outputs) visit(output.node.get());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    std::vector<std::pair<size_t, size_t>> leaves;  // output of the node -> input of the module
    for (size_t i = 0; i < node->num_outputs(); ++i) {
      const torch::autograd::Edge& next = node->next_edge(i);
      if (next.function == nullptr) continue;
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
    node->add_post_hook(std::make_unique<PostHook>(
        [call = shared_from_this(), leaves](const variable_list& leaving, const variable_list&) {
          for (const auto& [output, input] : leaves) call->GradientLeaves(input, leaving[output]);
        }));
  }
}

void ModuleCall::GradientArrived(size_t output, const at::Tensor& gradient) {
  if (!recorder_->capturing()) return;
  const std::lock_guard lock(mu_);
  recorder_->Contain(forward_, [&] {
    if (done_) {  // another backward over a retained graph
      done_ = begun_ = false;
      arrived_ = 0;
      for (Arriving& each : arriving_) each = {};
      for (Leaving& each : leaving_) each = {.expected = each.expected, .seen = 0, .sum = {}};
    }
    if (arrived_ == 0) {
      ThreadState& thread = ThreadState::Get();
      backward_ = recorder_->BeginBackward(forward_, false, core::RiskLevel::kAll, thread);
      recorder_->PushModule(thread, nullptr, backward_);
      torch::autograd::Engine::get_default_engine().queue_callback([call = shared_from_this()] { call->Finish(); });
    }
    if (!arriving_[output].arrived) {
      arriving_[output].arrived = true;
      ++arrived_;
    }
    arriving_[output].gradient = gradient;
    for (size_t input : direct_[output]) GradientLeaves(input, gradient);
    if (arrived_ < arriving_.size()) return;
    Begin();
    if (AllLeft()) Complete();
  });
}

void ModuleCall::Begin() {
  if (begun_) return;
  begun_ = true;
  std::vector<at::Tensor> gradients;
  for (Arriving& each : arriving_) gradients.push_back(std::move(each.gradient));
  for (Arriving& each : arriving_) each.gradient.reset();
  if (backward_.wanted) {
    FragmentBuilder& builder = ThreadState::Get().builder;
    Recorder::StartFragment(backward_, builder);
    if (recorder_->WantsInput(core::Direction::kBackward)) {
      builder.Key("input");
      builder.BeginList();
      for (const at::Tensor& gradient : gradients) {
        if (gradient.defined()) {
          builder.Tensor(recorder_->reader().Read(gradient, backward_.save));
        } else {
          builder.None();
        }
      }
      builder.End();
    }
    recorder_->Emit(backward_, builder, core::kEnter);
  }
  for (const Alias& alias : output_aliases_) EmitBackward(*recorder_, *alias.api, alias.forward, gradients, gradients);
}

bool ModuleCall::AllLeft() const {
  return std::all_of(leaving_.begin(), leaving_.end(),
                     [](const Leaving& each) { return each.seen >= each.expected && each.expected > 0; });
}

void ModuleCall::GradientLeaves(size_t input, const at::Tensor& gradient) {
  if (!recorder_->capturing()) return;
  const std::lock_guard lock(mu_);
  recorder_->Contain(forward_, [&] {
    if (done_ || arrived_ == 0) return;  // flows to the input without passing the outputs
    Leaving& leaving = leaving_[input];
    ++leaving.seen;
    if (gradient.defined()) {
      if (!leaving.sum.defined() && leaving.expected == 1) {
        leaving.sum = gradient;
      } else {
        // The engine may add to this memory next, so a copy is kept. It adds in this order too.
        const Unseen unseen;
        leaving.sum = leaving.sum.defined() ? leaving.sum.add(gradient) : gradient.clone();
      }
    }
    if (arrived_ < arriving_.size() || !AllLeft()) {
      if (leaving.sum.defined() && leaving.expected == 1) {
        const Unseen unseen;
        leaving.sum = leaving.sum.clone();
      }
      return;
    }
    Begin();
    Complete();
  });
}

void ModuleCall::Complete() {
  done_ = true;
  std::vector<at::Tensor> gradients;
  for (Leaving& each : leaving_) gradients.push_back(std::move(each.sum));
  for (Leaving& each : leaving_) each.sum.reset();
  if (backward_.wanted) {
    FragmentBuilder& builder = ThreadState::Get().builder;
    Recorder::StartFragment(backward_, builder);
    if (recorder_->WantsOutput(core::Direction::kBackward)) {
      builder.Key("output");
      builder.BeginList();
      for (const at::Tensor& gradient : gradients) {
        if (gradient.defined()) {
          builder.Tensor(recorder_->reader().Read(gradient, backward_.save));
        } else {
          builder.None();
        }
      }
      builder.End();
    }
    recorder_->Emit(backward_, builder, core::kExit);
  } else {
    recorder_->EmitConstructOnly(backward_);
  }
  recorder_->PopModule(ThreadState::Get(), backward_);
  for (const Alias& alias : input_aliases_) EmitBackward(*recorder_, *alias.api, alias.forward, gradients, gradients);
}

void ModuleCall::Finish() {
  const std::lock_guard lock(mu_);
  if (done_ || arrived_ == 0) return;
  recorder_->Contain(forward_, [&] {
    Begin();
    Complete();
  });
}

}  // namespace msprobe::capture
