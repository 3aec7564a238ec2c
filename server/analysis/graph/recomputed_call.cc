#include "server/analysis/graph/recomputed_call.h"

#include <string>
#include <string_view>
#include <vector>

namespace msprobe::server {
namespace {

// The file and the function of a line of a stack, "File PATH, line N, in FUNCTION, ...".
struct StackLine {
  std::string_view file;
  std::string_view function;
};
StackLine StackLineOf(std::string_view line) {
  constexpr std::string_view kFile = "File ";
  constexpr std::string_view kIn = ", in ";
  const size_t file = line.find(kFile);
  const size_t end = line.find(", line ");
  const size_t in = line.find(kIn);
  if (file == std::string_view::npos || end == std::string_view::npos || in == std::string_view::npos || end < file) {
    return {};
  }
  const std::string_view function = line.substr(in + kIn.size());
  return {line.substr(file + kFile.size(), end - file - kFile.size()), function.substr(0, function.find(','))};
}

bool IsRecomputed(const std::vector<std::string>& stack) {
  std::vector<StackLine> lines;
  for (const std::string& line : stack) {
    lines.push_back(StackLineOf(line));
    if (lines.back().function == "recompute_fn" && lines.back().file.ends_with("torch/utils/checkpoint.py")) {
      return true;
    }
  }
  const auto is_autograd = [&](size_t i) {
    return i < lines.size() && lines[i].file.ends_with("torch/autograd/function.py");
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool backward = lines[i].function == "backward" || (lines[i].function == "checkpoint_function_backward" &&
                                                              lines[i].file.find("megatron") != std::string_view::npos);
    if (backward && (is_autograd(i + 1) || is_autograd(i + 2))) return true;
  }
  return false;
}

}  // namespace

bool IsRecomputed(const StepTable& table, int32_t stack) {
  return table.framework == "pytorch" && stack >= 0 && IsRecomputed(table.stacks[static_cast<size_t>(stack)]);
}

}  // namespace msprobe::server
