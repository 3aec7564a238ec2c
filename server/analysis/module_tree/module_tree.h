#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace msprobe::server {

// The modules of a step, one inside the other. Paths come from names of records (module_name.h, record_places.h).
//
// Modules are numbered from kTop, the model as a whole, in the order in which they were added; a parent has a smaller
// number than its children. Paths and types are borrowed and outlive the tree.
// Threads: one while it is filled, any number afterwards.
class ModuleTree {
 public:
  static constexpr uint32_t kTop = 0;
  static constexpr std::string_view kTopType = "TopLayer";

  struct Module {
    std::string_view path;   // "model.layers.0.mlp"; empty: the top
    std::string_view type;   // its class; until SetType its own name, the last one of the path
    uint32_t parent = kTop;  // of the top: itself
    uint32_t layer = kTop;   // the numbered layer that it is or lies in; kTop: none
  };

  ModuleTree();

  // The module with this path. If it is new, it is added together with the modules around it.
  uint32_t Add(std::string_view path);
  void SetType(uint32_t module, std::string_view type) { modules_[module].type = type; }

  std::optional<uint32_t> Find(std::string_view path) const;
  std::optional<uint32_t> FindChild(uint32_t parent, std::string_view name) const;
  const std::vector<Module>& modules() const { return modules_; }

 private:
  std::vector<Module> modules_;
  absl::flat_hash_map<std::string_view, uint32_t> by_path_;
};

}  // namespace msprobe::server
