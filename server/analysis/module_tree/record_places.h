#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Where a record stands among the modules of its model, by mindstudio-probe's rules.
struct RecordPlace {
  // The modules around it and its own name: "TopLayer.model.layers.0.mlp" or "Module.model.layers.0.mlp".
  std::string scope;
  std::string type;   // its class, or the API
  std::string state;  // "forward", "backward", "parameters_grad"

  // Its path in the ModuleTree.
  std::string_view path() const { return std::string_view(scope).substr(scope.find('.') + 1); }
};

// The places of a step's records, by index into StepTable.entries. A backward call stands where its forward call does.
// Needs Entry.parent and the stacks of the table.
std::vector<RecordPlace> PlacesOfRecords(const StepTable& table);

}  // namespace msprobe::server
