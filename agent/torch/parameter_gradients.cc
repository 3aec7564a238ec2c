#include "agent/torch/parameter_gradients.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include "agent/torch/autograd_hooks.h"

namespace msprobe::capture {
namespace {

void RecordGradient(Recorder& recorder, const std::shared_ptr<const std::string>& module, const std::string& name,
                    const at::Tensor& gradient) {
  ThreadState& thread = ThreadState::Get();
  OpenRecord record = recorder.BeginParameterGradient(module, name, thread);
  if (!record.wanted) return;
  recorder.Contain(record, [&] {
    FragmentBuilder& builder = thread.builder;
    Recorder::StartFragment(record, builder);
    builder.Key(name);
    builder.BeginList();
    if (gradient.defined()) {
      builder.Tensor(recorder.reader().Read(gradient, record.save));
    } else {
      builder.None();
    }
    builder.End();
    recorder.Emit(record, builder, core::kEnter | core::kExit | core::kUpdate);
  });
}

}  // namespace

ParameterGradients::~ParameterGradients() {
  absl::MutexLock lock(&mu_);
  for (auto& [impl, watched] : watched_) watched.accumulator->del_post_hook(watched.hook);
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
  Watched& watched = watched_[parameter.unsafeGetTensorImpl()];
  if (watched.accumulator == accumulator) return;
  const std::weak_ptr<Recorder> weak = recorder_;
  auto* node = static_cast<torch::autograd::AccumulateGrad*>(accumulator.get());
  watched.hook = accumulator->add_post_hook(std::make_unique<PostHook>(
      [weak, module, name, node](const torch::autograd::variable_list&, const torch::autograd::variable_list&) {
        const std::shared_ptr<Recorder> recorder = weak.lock();
        if (recorder != nullptr && recorder->capturing()) RecordGradient(*recorder, module, name, node->variable.grad());
      }));
  watched.accumulator = std::move(accumulator);
}

}  // namespace msprobe::capture
