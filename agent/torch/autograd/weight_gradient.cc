#include "agent/torch/autograd/weight_gradient.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "agent/torch/autograd/api_backward.h"
#include "agent/torch/autograd/autograd_hooks.h"
#include "agent/torch/torch_source.h"

namespace msprobe::capture {

using torch::autograd::Node;
using torch::autograd::variable_list;

void HookWeightGradient(const std::shared_ptr<Recorder>& recorder, const OpenRecord& forward, const at::Tensor& weight,
                        const at::Tensor& output, uint64_t first_sequence) {
  if (!at::GradMode::is_enabled() || output.is_leaf()) return;
  const GradientEdge target = EdgeOf(weight), start = EdgeOf(output);
  if (target.node == nullptr || start.node == nullptr) return;
  absl::flat_hash_set<const Node*> seen = {start.node.get()};
  std::vector<Node*> open = {start.node.get()};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (size_t i = 0; i < node->num_outputs(); ++i) {
      const torch::autograd::Edge& next = node->next_edge(i);
      if (next.function == nullptr) continue;
      if (target == GradientEdge{next.function, next.input_nr}) {
        node->add_post_hook(MakePostHook([recorder, forward, i](const variable_list& leaving, const variable_list&) {
          if (!recorder->step().capturing() && recorder->step().number() != forward.step) return;
          OpenRecord record = recorder->opener().BackwardOf(forward);
          if (!record.wanted || !leaving[i].defined()) return;
          recorder->faults().Contain(record, [&] {
            FragmentBuilder& builder = ThreadState::Get().builder;
            FragmentEmitter::Start(record, builder);
            builder.Key("weight_grad");
            builder.BeginList();
            builder.Tensor(recorder->Read(RefTo(leaving[i]), record.save));
            builder.End();
            recorder->emitter().Emit(record, builder, core::kExit);
          });
        }));
      } else if (next.function->num_outputs() > 0 && next.function->sequence_nr() >= first_sequence &&
                 seen.insert(next.function.get()).second) {
        open.push_back(next.function.get());
      }
    }
  }
}

}  // namespace msprobe::capture
