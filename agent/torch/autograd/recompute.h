#pragma once

#include <torch/csrc/autograd/function.h>

namespace msprobe::capture {

// Whether a call made inside this node of a backward pass belongs to activation checkpointing's second forward: in the
// reentrant form it runs inside CheckpointFunction's own node, in the other where a node unpacks what it saved. What
// the backward of a user's autograd.Function calls does not, unless it is a module.
bool IsRecompute(const torch::autograd::Node& current, bool is_module);

}  // namespace msprobe::capture
