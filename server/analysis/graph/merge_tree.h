#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/graph/step_graph.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server::merge {

// The graph of one rank while ranks are merged: nodes that know each other, and can be renamed, moved and given values.
// Threads: one.

// A row, and the table that its texts are in.
struct Value {
  std::string name;
  const StepTable* table = nullptr;
  Row row;
};

struct Node {
  using Children = std::shared_ptr<std::vector<Node*>>;

  std::string name;
  GraphNode::Kind kind = GraphNode::Kind::kModule;
  uint32_t rank = 0;
  uint32_t micro_step = 0;
  const StepTable* table = nullptr;
  int32_t stack = -1;
  Node* parent = nullptr;
  Children children = std::make_shared<std::vector<Node*>>();  // shared while someone walks it
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  std::vector<std::string> notes;
  // Of a pipeline.
  bool other_layer = false;  // every rank has another one
  std::optional<int> layer;  // its number in the whole model
};

// Nodes by name, in the order in which the names came.
class NodesByName {
 public:
  Node* Find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : in_order_.at(found->second);
  }
  // Takes the place of one of the same name.
  void Put(const std::string& name, Node* node) {
    const auto [found, added] = places_.try_emplace(name, next_);
    if (added) ++next_;
    in_order_[found->second] = node;
  }
  void Erase(const std::string& name) {
    const auto found = places_.find(name);
    if (found == places_.end()) return;
    in_order_.erase(found->second);
    places_.erase(found);
  }
  std::vector<Node*> InOrder() const {
    std::vector<Node*> nodes;
    for (const auto& [place, node] : in_order_) nodes.push_back(node);
    return nodes;
  }

 private:
  absl::flat_hash_map<std::string, uint64_t> places_;
  std::map<uint64_t, Node*> in_order_;
  uint64_t next_ = 0;
};

struct Tree {
  uint32_t rank = 0;
  const StepTable* table = nullptr;
  uint32_t micro_steps = 1;
  Node* root = nullptr;
  NodesByName nodes;
  int collections = 0;  // of all ranks
};
using Trees = std::vector<Tree*>;

std::string Replaced(std::string_view text, std::string_view from, std::string_view to);

// `from` is the name that the node's values have in theirs.
void Rename(Node& node, const std::string& from, std::string to);

// The names of the nodes around a node, the innermost first.
std::vector<std::string> Around(const Node& node);

// "Torch.add_rank1.0.forward" of "Torch.add.0.forward".
std::string WithRank(std::string_view name, std::string_view rank);

// The places of numbers of layers ("3" of "layers.3.mlp") in a name.
std::vector<std::pair<size_t, size_t>> LayerNumbers(std::string_view name);
bool IsLayer(std::string_view name);
std::string WithLayer(std::string name, std::string_view number);

bool IsForward(std::string_view name);

// Whether a module is not the model's: each rank has its own.
bool IsApart(std::string_view name);

// What "%POSITION%RANK" at the end of a name says; it marks nodes that came from another rank of the pipeline.
struct Mark {
  int position = 0;
  int rank = 0;
  size_t begin = 0;  // of the mark in the name
};
std::optional<Mark> MarkOf(std::string_view name);

}  // namespace msprobe::server::merge
