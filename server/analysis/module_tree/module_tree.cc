#include "server/analysis/module_tree/module_tree.h"

#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {

ModuleTree::ModuleTree() {
  modules_.push_back({{}, kTopType, kTop, kTop});
  by_path_.emplace(std::string_view(), kTop);
}

uint32_t ModuleTree::Add(std::string_view path) {
  if (const std::optional<uint32_t> known = Find(path)) return *known;
  const std::string_view around = WithoutLastParts(path, 1);
  const uint32_t parent = Add(around);
  const auto module = static_cast<uint32_t>(modules_.size());
  const uint32_t layer = LayerOf(path) == path ? module : modules_[parent].layer;
  modules_.push_back({path, path.substr(around.empty() ? 0 : around.size() + 1), parent, layer});
  by_path_.emplace(path, module);
  return module;
}

std::optional<uint32_t> ModuleTree::Find(std::string_view path) const {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? std::nullopt : std::optional<uint32_t>(found->second);
}

std::optional<uint32_t> ModuleTree::FindChild(uint32_t parent, std::string_view name) const {
  return parent == kTop ? Find(name) : Find(Cat(modules_[parent].path, ".", name));
}

}  // namespace msprobe::server
