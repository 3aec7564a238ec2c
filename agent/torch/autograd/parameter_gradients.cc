#include "agent/torch/autograd/parameter_gradients.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "agent/torch/autograd/autograd_hooks.h"
#include "agent/torch/autograd/open_backward.h"
#include "agent/torch/autograd/shared_gradients.h"
#include "agent/torch/torch_source.h"

namespace msprobe::capture {
namespace {

void RecordGradient(Recorder& recorder, const std::shared_ptr<const std::string>& module, const std::string& name,
                    const at::Tensor& gradient) {
  ThreadState& thread = ThreadState::Get();
  OpenRecord record = recorder.opener().BeginParameterGradient(module, name, thread);
  if (!record.wanted) return;
  recorder.faults().Contain(record, [&] {
    FragmentBuilder& builder = thread.builder;
    FragmentEmitter::Start(record, builder);
    builder.Key(name);
    builder.BeginList();
    if (gradient.defined()) {
      TensorReading reading = recorder.Read(RefTo(gradient), record.save);
      if (gradients_are_shared) reading.identity.has_version = false;
      builder.Tensor(reading);
    } else {
      builder.None();
    }
    builder.End();
    recorder.emitter().Emit(record, builder, core::kEnter | core::kExit | core::kUpdate);
  });
}

constexpr uint64_t kUnused = std::numeric_limits<uint64_t>::max();

}  // namespace

ParameterGradients::~ParameterGradients() {
  absl::MutexLock lock(&mu_);
  for (auto& [key, watched] : watched_) watched.accumulator->del_post_hook(watched.hook);
}

void ParameterGradients::Watch(const std::shared_ptr<const std::string>& module, const std::string& name,
                               const at::Tensor& parameter) {
  if (!parameter.requires_grad() || !parameter.is_leaf() || recorder_->config().task == core::Task::kStructure ||
      !recorder_->config().backward) {
    return;
  }
  decltype(torch::autograd::Edge::function) accumulator = torch::autograd::impl::grad_accumulator(parameter);
  if (accumulator == nullptr) return;
  absl::MutexLock lock(&mu_);
  Watched& watched = watched_[{parameter.unsafeGetTensorImpl(), module.get()}];
  if (watched.accumulator == accumulator) return;
  const std::weak_ptr<Recorder> weak = recorder_;
  auto* node = static_cast<torch::autograd::AccumulateGrad*>(accumulator.get());
  auto& [first_use, own_hooks] = accumulators_[accumulator.get()];
  if (first_use == nullptr) first_use = core::MakePooled<FirstUse>(kUnused);
  watched.first_use = first_use;
  watched.hook = accumulator->add_post_hook(
      MakePostHook([weak, module, name, node, first_use = first_use](const torch::autograd::variable_list&,
                                                                     const torch::autograd::variable_list&) {
        const std::shared_ptr<Recorder> recorder = weak.lock();
        const uint64_t sequence = first_use->exchange(kUnused);
        if (recorder == nullptr || !recorder->step().capturing()) return;
        if (sequence != kUnused) OpenBackward::EndBehind(sequence);
        RecordGradient(*recorder, module, name, node->variable.grad());
      }));
  // Behind our own, so that modules come in the order of their forward calls, and before those of others: a reducer's
  // begins to exchange the gradient, in its bucket by another thread.
  auto& hooks = const_cast<std::vector<std::unique_ptr<torch::autograd::FunctionPostHook>>&>(accumulator->post_hooks());
  const auto place = hooks.begin() + static_cast<std::ptrdiff_t>(std::min(own_hooks++, hooks.size() - 1));
  std::rotate(place, hooks.end() - 1, hooks.end());
  watched.accumulator = std::move(accumulator);
}

void ParameterGradients::NoteUses(const std::vector<ParameterUse>& uses) {
  if (uses.empty()) return;
  absl::MutexLock lock(&mu_);
  for (const ParameterUse& use : uses) {
    const auto found = accumulators_.find(use.accumulator);
    if (found == accumulators_.end()) continue;
    FirstUse& first_use = *found->second.first_use;
    uint64_t first = first_use.load();
    while (use.sequence < first && !first_use.compare_exchange_weak(first, use.sequence)) {
    }
  }
}

}  // namespace msprobe::capture
