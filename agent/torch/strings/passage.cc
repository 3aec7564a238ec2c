#include "agent/torch/strings/passage.h"

#include <torch/csrc/autograd/custom_function.h>

namespace msprobe::capture {
namespace {

using torch::autograd::variable_list;

struct Passage : public torch::autograd::Function<Passage> {
  static variable_list forward(torch::autograd::AutogradContext* context, at::TensorList tensors) {
    context->set_materialize_grads(false);
    variable_list same;
    for (const at::Tensor& tensor : tensors) same.push_back(tensor.detach());
    return same;
  }
  static variable_list backward(torch::autograd::AutogradContext*, const variable_list& gradients) { return gradients; }
};

}  // namespace

std::vector<at::Tensor> PassThrough(const std::vector<at::Tensor>& tensors) {
  return Passage::apply(at::TensorList(tensors));
}

}  // namespace msprobe::capture
