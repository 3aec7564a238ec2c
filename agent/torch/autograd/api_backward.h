#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "agent/capture/gradient_readings.h"
#include "agent/capture/recorder.h"

namespace msprobe::capture {

// The target of a gradient: input number `index` of `node`.
struct GradientEdge {
  decltype(torch::autograd::Edge::function) node;
  uint32_t index = 0;

  bool operator==(const GradientEdge& other) const { return node == other.node && index == other.index; }
};

// The edge of a tensor that takes part in autograd; an empty node otherwise. Needs no GIL.
GradientEdge EdgeOf(const at::Tensor& tensor);

// Arranges for the backward record of an API call: a post-hook on the node of `output`, the first tensor of what the
// call returned. The node that made the output is hooked as mindstudio-probe does, so a call that is a view behind
// a kernel shows the view's gradients. A call that gave back a tensor of the enclosing module's inputs, or an output of
// a module, belongs to the module's boundary: the module call emits it.
//
// Does nothing without grad mode or when the output requires no gradient.
void HookApiBackward(const std::shared_ptr<Recorder>& recorder, OpenRecord& forward, const at::Tensor& output,
                     ThreadState& thread);

GradientReadings ReadGradients(const Recorder& recorder, bool save, const std::vector<at::Tensor>& gradients);

}  // namespace msprobe::capture
