#pragma once

#include <cstdint>
#include <span>

#include "agent/capture/gradient_readings.h"
#include "agent/capture/open_record.h"
#include "agent/capture/recorder.h"

namespace torch::autograd {
struct Node;
}

namespace msprobe::capture {

// The edges of gradients that autograd adds up (GradientParts): where a tensor is used twice, the gradients of its uses
// meet at one input of the node that made it. Both do nothing without edges, and belong to the pass of this thread.

// An input of a node. The node is an identity: it is looked at only by ResolveSum, while it runs.
struct NodeInput {
  torch::autograd::Node* node = nullptr;
  uint32_t index = 0;
};

// `record` was emitted and gave gradients: `given[i]`, if there is one, goes to `to[i]`. first_leaf: the number of the
// first of them among the leaves of the record's last fragment.
void NoteGiven(Recorder& recorder, const OpenRecord& record, const GradientReadings& given, uint32_t first_leaf,
               std::span<const NodeInput> to);

// `arrived` was read where it arrived. Tells the record that gave it, if autograd added it up. A gradient that a hook
// of the program may have replaced stays as its memory tells.
void ResolveSum(Recorder& recorder, const NodeInput& at, TensorReading& arrived);

}  // namespace msprobe::capture
