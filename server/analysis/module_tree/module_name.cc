#include "server/analysis/module_tree/module_name.h"

#include <algorithm>

#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

constexpr int kGroupNames = 4;
constexpr size_t kLongestGroup = 120;

}  // namespace

std::vector<std::string_view> PartsOfName(std::string_view name) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t end = name.find('.'); end != std::string_view::npos; end = name.find('.', begin)) {
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(name.substr(begin));
  return parts;
}

bool IsNumberPart(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

bool IsModuleKind(std::string_view kind) { return kind == "Module" || kind == "Cell"; }

std::string_view ApiOf(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? name : name.substr(0, name.find('.', dot + 1));
}

std::string_view OperationOf(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : ApiOf(name).substr(dot + 1);
}

std::string_view WithoutLastParts(std::string_view name, int parts) {
  for (; parts > 0; --parts) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    name = name.substr(0, dot);
  }
  return name;
}

std::string_view ModuleOf(const Entry& entry) {
  const auto is_module = [](std::string_view name) { return IsModuleKind(name.substr(0, name.find('.'))); };
  const std::string_view name = is_module(entry.name) ? entry.name : entry.parent;
  if (!is_module(name)) return {};
  // Class, direction and count, or class, parameters_grad and count.
  return WithoutLastParts(WithoutPass(name).substr(name.find('.') + 1), 3);
}

bool IsWithin(std::string_view module, std::string_view around) {
  return module == around || (module.starts_with(around) && module.substr(around.size()).starts_with('.'));
}

std::string_view LayerOf(std::string_view module) {
  size_t begin = 0;
  while (begin < module.size()) {
    const size_t end = std::min(module.find('.', begin), module.size());
    if (IsNumberPart(module.substr(begin, end - begin))) return module.substr(0, end);
    begin = end + 1;
  }
  return {};
}

std::string LayerNameOf(const Entry& entry) {
  const std::string_view module = ModuleOf(entry);
  if (const std::string_view layer = LayerOf(module); !layer.empty()) return std::string(layer);
  if (!module.empty()) return std::string(module);
  return std::string(ApiOf(entry.name));
}

std::string ModuleGroup(std::string_view module) {
  if (module.empty()) return "none";
  std::string group;
  for (int names = 0; names < kGroupNames && !module.empty(); ++names) {
    const size_t end = std::min(module.find('.'), module.size());
    const std::string_view name = module.substr(0, end);
    module.remove_prefix(std::min(end + 1, module.size()));
    if (!group.empty()) group += '.';
    group += IsNumberPart(name) ? "*" : name;
  }
  if (group.size() > kLongestGroup) group.resize(kLongestGroup);
  return group;
}

}  // namespace msprobe::server
