#include "agent/torch/autograd/recompute.h"

#include <string_view>
#include <typeinfo>

#include "agent/torch/strings/torch_strings.h"

namespace msprobe::capture {

bool IsRecompute(const torch::autograd::Node& current, bool is_module) {
  // Nodes of Python functions are named by type only, as this room does without Python.
  const bool is_python = std::string_view(typeid(current).name()).find("PyNode") != std::string_view::npos;
  return is_module || !is_python || IsNamed(current, "CheckpointFunctionBackward");
}

}  // namespace msprobe::capture
