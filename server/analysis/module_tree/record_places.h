#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// The parts of a name between its dots.
std::vector<std::string_view> PartsOfName(std::string_view name);

// Where a record stands among the modules of its model, by mindstudio-probe's rules.
struct RecordPlace {
  std::string
      scope;  // "TopLayer.model.layers.0.mlp" or "Module.model.layers.0.mlp": the modules around it and its own name
  std::string type;   // its class, or the API
  std::string state;  // "forward", "backward", "parameters_grad"
};

// The places of a step's records, by index into StepTable.entries. A backward call stands where its forward call does.
// Needs Entry.parent and the stacks of the table.
std::vector<RecordPlace> PlacesOfRecords(const StepTable& table);

// The modules of a step, one inside the other, and the records that stand at each.
// Movable; one thread at a time while it is filled, any number afterwards.
class PlaceTree {
 public:
  static constexpr std::string_view kTop = "TopLayer";

  // Of a step whose records have these places.
  explicit PlaceTree(const std::vector<RecordPlace>& places);

  // Class of the module; of one that is no record itself, its name.
  const std::string& type() const { return type_; }
  // Null: there is none.
  const PlaceTree* Child(std::string_view name) const;
  // Records here with this state, in order of execution. Null: there are none.
  const std::vector<size_t>* Records(std::string_view state) const;

 private:
  explicit PlaceTree(std::string_view name) : type_(name) {}
  void Insert(const RecordPlace& place, size_t record);

  std::string type_;
  absl::flat_hash_map<std::string, std::unique_ptr<PlaceTree>> children_;
  absl::flat_hash_map<std::string, std::vector<size_t>> records_;  // by state
};

}  // namespace msprobe::server
