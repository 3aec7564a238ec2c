#include "agent/torch/api_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "agent/torch/autograd_hooks.h"
#include "agent/torch/module_call.h"

namespace msprobe::capture {
namespace {

void Gradients(const TensorReader& reader, bool save, const std::vector<at::Tensor>& gradients, FragmentBuilder& builder) {
  builder.BeginList();
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      builder.Tensor(reader.Read(gradient, save));
    } else {
      builder.None();
    }
  }
  builder.End();
}

}  // namespace

GradientEdge EdgeOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return {};
  torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
  return {std::move(edge.function), edge.input_nr};
}

void EmitBackward(Recorder& recorder, const Api& api, const OpenRecord& forward, const std::vector<at::Tensor>& arriving,
                  const std::vector<at::Tensor>& leaving) {
  ThreadState& thread = ThreadState::Get();
  OpenRecord record = recorder.BeginBackward(forward, true, api.risk, thread);
  recorder.Contain(record, [&] {
    if (!record.wanted) return recorder.EmitConstructOnly(record);
    FragmentBuilder& builder = thread.builder;
    Recorder::StartFragment(record, builder);
    if (recorder.WantsInput(core::Direction::kBackward)) {
      builder.Key("input");
      Gradients(recorder.reader(), record.save, arriving, builder);
    }
    if (recorder.WantsOutput(core::Direction::kBackward)) {
      builder.Key("output");
      Gradients(recorder.reader(), record.save, leaving, builder);
    }
    recorder.Emit(record, builder, core::kEnter | core::kExit);
  });
}

void HookApiBackward(const std::shared_ptr<Recorder>& recorder, const Api& api, const OpenRecord& forward,
                     const at::Tensor& output, ThreadState& thread) {
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad() || output.is_leaf()) return;
  const GradientEdge edge = EdgeOf(output);
  if (edge.node == nullptr) return;
  for (size_t i = thread.modules.size(); i-- > 0;) {
    const std::shared_ptr<ModuleCall>& call = thread.modules[i].call;
    if (call != nullptr && call->HasInput(edge)) return call->AddInputAlias(api, forward);
  }
  if (const std::shared_ptr<ModuleCall> call = LastReturning(edge)) return call->AddOutputAlias(api, forward);
  edge.node->add_post_hook(std::make_unique<PostHook>(
      [recorder, &api, forward](const torch::autograd::variable_list& leaving,
                                const torch::autograd::variable_list& arriving) {
        if (recorder->capturing() || recorder->step() == forward.step) {
          EmitBackward(*recorder, api, forward, arriving, leaving);
        }
      }));
}

}  // namespace msprobe::capture
