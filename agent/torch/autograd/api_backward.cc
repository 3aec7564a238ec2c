#include "agent/torch/autograd/api_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "agent/torch/autograd/autograd_hooks.h"
#include "agent/torch/autograd/gradient_sums.h"
#include "agent/torch/autograd/module_call.h"
#include "agent/torch/autograd/open_backward.h"
#include "agent/torch/torch_source.h"

namespace msprobe::capture {

GradientEdge EdgeOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return {};
  torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
  return {std::move(edge.function), edge.input_nr};
}

GradientReadings ReadGradients(const Recorder& recorder, bool save, const std::vector<at::Tensor>& gradients) {
  GradientReadings readings(gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) readings[i] = recorder.Read(RefTo(gradients[i]), save);
  }
  return readings;
}

namespace {

// arrived: of `arriving`, read before the node ran; empty: read them now.
void RecordPassing(Recorder& recorder, const OpenRecord& forward, torch::autograd::Node& node, GradientReadings arrived,
                   const std::vector<at::Tensor>& arriving, const std::vector<at::Tensor>& leaving) {
  const CallSampler::Cost cost(recorder.sampler());
  OpenRecord record = recorder.opener().BeginBackward(forward, ThreadState::Get());
  recorder.faults().Contain(record, [&] {
    if (!record.wanted) return recorder.emitter().EmitConstructOnly(record);
    const auto read = [&](bool wanted, const std::vector<at::Tensor>& gradients) {
      return wanted ? ReadGradients(recorder, record.save, gradients) : GradientReadings();
    };
    if (arrived.empty()) arrived = read(recorder.rules().WantsInput(core::Direction::kBackward), arriving);
    uint32_t leaves = 0;
    for (uint32_t i = 0; i < arrived.size(); ++i) {
      if (!arrived[i]) continue;
      ResolveSum(recorder, {&node, i}, *arrived[i]);
      ++leaves;
    }
    const GradientReadings left = read(recorder.rules().WantsOutput(core::Direction::kBackward), leaving);
    EmitGradients(recorder, record, arrived, left);
    absl::InlinedVector<NodeInput, 4> to;
    for (const torch::autograd::Edge& next : node.next_edges()) to.push_back({next.function.get(), next.input_nr});
    NoteGiven(recorder, record, left, leaves, to);
  });
}

}  // namespace

void HookApiBackward(const std::shared_ptr<Recorder>& recorder, OpenRecord& forward, const at::Tensor& output,
                     ThreadState& thread) {
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad() || output.is_leaf()) return;
  const GradientEdge edge = EdgeOf(output);
  if (edge.node == nullptr) return;
  forward.passes = core::MakePooled<PassCount>();
  for (size_t i = thread.modules.size(); i-- > 0;) {
    auto* const call = static_cast<ModuleCall*>(thread.modules[i].call.get());
    if (call != nullptr && call->HasInput(edge)) return call->AddInputAlias(forward);
  }
  if (const std::shared_ptr<ModuleCall> call = LastReturning(edge)) return call->AddOutputAlias(forward);
  const uint64_t sequence = edge.node->sequence_nr();
  std::shared_ptr<GradientReadings> arrived;
  if (recorder->memory().replays() && !forward.save) {
    arrived = core::MakePooled<GradientReadings>();
    // What has left the node before is fresh until this one computes (FreshReadings).
    edge.node->add_pre_hook(MakePreHook([recorder, forward, arrived](const torch::autograd::variable_list& arriving) {
      if (!recorder->step().capturing() || !recorder->rules().WantsInput(core::Direction::kBackward)) return;
      recorder->faults().Contain(forward, [&] { *arrived = ReadGradients(*recorder, false, arriving); });
    }));
  }
  edge.node->add_post_hook(
      MakePostHook([recorder, forward, node = edge.node.get(), sequence, arrived](
                       const torch::autograd::variable_list& leaving, const torch::autograd::variable_list& arriving) {
        if (!recorder->step().capturing() && recorder->step().number() != forward.step) return;
        OpenBackward::EndBehind(sequence);
        GradientReadings before = arrived == nullptr ? GradientReadings() : std::exchange(*arrived, {});
        RecordPassing(*recorder, forward, *node, std::move(before), arriving, leaving);
      }));
}

}  // namespace msprobe::capture
