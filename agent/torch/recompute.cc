#include "agent/torch/recompute.h"

#include <torch/csrc/autograd/function.h>

#include <string_view>
#include <typeinfo>

namespace msprobe::capture {

bool Recomputing(bool is_module) {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return false;
  // Nodes of Python functions are named by type only, as this room does without Python.
  const torch::autograd::Node& current = *node;
  const bool is_python = std::string_view(typeid(current).name()).find("PyNode") != std::string_view::npos;
  return is_module || !is_python || node->name() == "CheckpointFunctionBackward";
}

}  // namespace msprobe::capture
