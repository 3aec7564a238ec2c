#include "agent/torch/autograd/gradient_sums.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "agent/torch/torch_versions.h"

namespace msprobe::capture {
namespace {

using torch::autograd::FunctionPreHook;

GradientSlot SlotOf(const NodeInput& input) {
  return {.pass = torch::autograd::get_current_graph_task_id(), .node = input.node, .index = input.index};
}

bool ProgramHooks(torch::autograd::Node& node) {
  const auto is_ours = [](const std::unique_ptr<FunctionPreHook>& hook) {
    return dynamic_cast<const UncompiledHook<FunctionPreHook>*>(hook.get()) != nullptr;
  };
  const auto& tensors = node.tensor_pre_hooks();
  const auto& all = node.pre_hooks();
  return !std::all_of(tensors.begin(), tensors.end(), is_ours) || !std::all_of(all.begin(), all.end(), is_ours);
}

}  // namespace

void NoteGiven(Recorder& recorder, const OpenRecord& record, const GradientReadings& given, uint32_t first_leaf,
               std::span<const NodeInput> to) {
  GradientParts* const parts = recorder.gradient_parts();
  if (parts == nullptr || record.step != recorder.step().number()) return;
  uint32_t leaf = first_leaf;
  for (size_t i = 0; i < given.size() && i < to.size(); ++i) {
    if (!given[i]) continue;
    if (to[i].node != nullptr) parts->Add(SlotOf(to[i]), {.ordinal = record.ordinal, .leaf = leaf});
    ++leaf;
  }
}

void ResolveSum(Recorder& recorder, const NodeInput& at, TensorReading& arrived) {
  GradientParts* const parts = recorder.gradient_parts();
  if (parts == nullptr || ProgramHooks(*at.node)) return;
  arrived.sight.producer = parts->Resolve(SlotOf(at), arrived.sight.producer);
}

}  // namespace msprobe::capture
