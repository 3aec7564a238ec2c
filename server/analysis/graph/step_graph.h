#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// A module call, an API call, or several API calls under one node.
struct GraphNode {
  // As graph databases number them.
  enum class Kind : uint8_t { kModule = 0, kApi = 1, kCollection = 9 };

  std::string_view name;
  Kind kind = Kind::kModule;
  int32_t parent = -1;            // StepGraph::nodes(); of the root: -1
  std::vector<int32_t> children;  // in order of execution
  int32_t entry = -1;             // StepTable.entries; -1: the call has no data
  int32_t stack = -1;             // StepTable.stacks; of a backward call: its forward call's; -1: none
  uint32_t micro_step = 0;
};

// Of StepGraph::nodes().
inline constexpr int32_t kRootNode = 0;

// The calls of one step as a tree: which module called what. Made from construct.json's calls by mindstudio-probe's
// rules, so that both draw the same graph:
//   - the root is "DefaultModel"; calls without a module around them are its children;
//   - a backward call that lacks its parent, or has one that cannot be, gets the backward call of its forward call's
//     parent;
//   - calls that checkpointing repeats hang below the backward call of the module that called them first;
//   - two and more API calls in a row directly below the root are one collection, "Apis_Between_Modules.N";
//   - gradients of parameters hang below the last backward call of their module.
// A call whose parent is no call of the step, or is below it, is a child of the root.
//
// Borrows the table. Constant once made; threads: any.
class StepGraph {
 public:
  static constexpr std::string_view kRoot = "DefaultModel";
  static constexpr std::string_view kCollection = "Apis_Between_Modules";

  // InvalidArgument: the step has no calls, so nothing says what lies in what.
  static absl::StatusOr<StepGraph> Make(const StepTable& table);
  // Of nodes that know each other; the root is the first. Their names outlive the graph.
  static StepGraph Of(std::vector<GraphNode> nodes, uint32_t micro_steps);

  // The root is the first.
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const GraphNode& node(int32_t number) const { return nodes_[static_cast<size_t>(number)]; }
  // Every node after its children; the root is the last.
  const std::vector<int32_t>& order() const { return order_; }
  // -1: there is none.
  int32_t Find(std::string_view name) const;

  // How often the model ran forward and backward in this step, at least 1. Megatron counts them itself; elsewhere a new
  // one begins where a module directly below the root runs forward again after something ran backward. What
  // checkpointing computes again (IsRecomputed) begins none. So inference is one, and so are several forward passes
  // before a backward one.
  uint32_t micro_steps() const { return micro_steps_; }
  // Gives the node and everything below it another micro step.
  void SetMicroStep(int32_t node, uint32_t micro_step);

 private:
  friend class GraphBuilder;
  StepGraph() = default;

  void Order();

  TextArena arena_;  // names of collections
  std::vector<GraphNode> nodes_;
  std::vector<int32_t> order_;
  absl::flat_hash_map<std::string_view, int32_t> by_name_;
  uint32_t micro_steps_ = 1;
};

}  // namespace msprobe::server
