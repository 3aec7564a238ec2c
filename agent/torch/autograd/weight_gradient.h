#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "agent/capture/recorder.h"

namespace msprobe::capture {

// Adds the gradient of a linear's weight to the backward record of that call ("linear_weight_grad"). The node of the
// output does not show it: for more than two dimensions that node is a view.
//
// The gradient flows to the weight's edge from the nodes that the call made: the nodes that are reachable from `output`
// and have a sequence number of at least `first_sequence`, taken before the call. One call makes one such part. Called
// where HookApiBackward is, on the calling thread.
void HookWeightGradient(const std::shared_ptr<Recorder>& recorder, const OpenRecord& forward, const at::Tensor& weight,
                        const at::Tensor& output, uint64_t first_sequence);

}  // namespace msprobe::capture
