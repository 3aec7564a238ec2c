#include "server/analysis/graph/pipeline_merge.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "server/analysis/graph/merged_values.h"
#include "server/format/cat.h"

namespace msprobe::server::merge {
namespace {

void MarkAll(Node& node, uint32_t rank) {
  const std::vector<Node*>& around = *node.parent->children;
  const auto at = std::find_if(around.begin(), around.end(), [&](const Node* each) { return each->name == node.name; });
  node.name += Cat("%", at == around.end() ? 0 : at - around.begin(), "%", rank);
  for (Node* child : *node.children) MarkAll(*child, rank);
}

void AddTo(Tree& main, Node& node) {
  if (main.nodes.Find(node.name) == nullptr) main.nodes.Put(node.name, &node);
  for (Node* child : *node.children) AddTo(main, *child);
}

// What only one of the other ranks has in a module.
void AddOwn(Tree& main, Node& node, const std::vector<Node*>& others) {
  absl::flat_hash_map<std::string, int> owners;
  for (const Node* child : *node.children) ++owners[child->name];
  for (const Node* other : others) {
    absl::flat_hash_set<std::string> names;
    for (const Node* child : *other->children) {
      if (names.insert(child->name).second) ++owners[child->name];
    }
  }
  std::vector<Node*> own;
  for (const Node* other : others) {
    for (Node* child : *other->children) {
      if (owners[child->name] == 1) own.push_back(child);
    }
  }
  for (Node* child : own) {
    MarkAll(*child, child->rank);
    AddTo(main, *child);
    node.children->push_back(child);
    child->parent = &node;
  }
}

void MergeLayers(Tree& main, Node& node, const Trees& group) {
  std::vector<Node*> others;
  for (size_t i = 1; i < group.size(); ++i) {
    Node* const other = group[i]->nodes.Find(node.name);
    if (other == nullptr) return;
    others.push_back(other);
  }
  const bool inputs = !DifferencesOf(node, others, &Node::inputs, /*by_values=*/true).empty();
  const bool outputs = !DifferencesOf(node, others, &Node::outputs, /*by_values=*/true).empty();
  bool other_layers = inputs && outputs && IsLayer(node.name);
  if (absl::StrContains(node.name, ".backward.")) {  // a backward call may lack results: its forward call decides
    const Node* const forward = main.nodes.Find(Replaced(node.name, ".backward.", ".forward."));
    other_layers = other_layers || (forward != nullptr && forward->other_layer);
  }
  if (other_layers) {
    node.other_layer = true;
    for (Node* other : others) {
      MarkAll(*other, other->rank);
      AddTo(main, *other);
      other->parent = node.parent;
      node.parent->children->push_back(other);
    }
    return;
  }
  if (!inputs && outputs && absl::StrContains(node.name, ".forward.")) {
    node.outputs = others.back()->outputs;
  } else if (inputs && !outputs && absl::StrContains(node.name, ".backward.")) {
    node.inputs = others.back()->inputs;
  }
  AddOwn(main, node, others);
  const Node::Children children = node.children;
  for (size_t i = 0; i < children->size(); ++i) {  // grows
    if ((*children)[i]->kind == GraphNode::Kind::kModule) MergeLayers(main, *(*children)[i], group);
  }
}

// The name in the whole model of a node of another rank, and of all below it.
void NameByLayer(Tree& main, Node& from) {
  std::vector<std::pair<Node*, std::string>> waiting = {{&from, ""}};
  while (!waiting.empty()) {
    auto [node, layer] = waiting.back();
    waiting.pop_back();
    const std::optional<Mark> mark = MarkOf(node->name);
    if (mark && main.nodes.Find(node->name) != nullptr) {
      main.nodes.Erase(node->name);
      const std::string before = node->name.substr(0, mark->begin);
      std::string name = before;
      if (node->kind != GraphNode::Kind::kModule) {
        name = WithRank(before, Cat(mark->rank));
      } else if (IsLayer(before)) {
        if (node->layer) layer = Cat(*node->layer);
        name = layer.empty() ? before : WithLayer(before, layer);
      }
      Rename(*node, before, std::move(name));
      main.nodes.Put(node->name, node);
    }
    for (Node* child : *node->children) waiting.emplace_back(child, layer);
  }
}

void SortAround(Tree& main, const Node& node) {
  const bool forward = IsForward(node.name);
  std::vector<Node*> ours;
  std::vector<Node*> theirs;
  for (Node* each : *node.parent->children) (MarkOf(each->name) ? theirs : ours).push_back(each);
  std::stable_sort(theirs.begin(), theirs.end(), [&](const Node* a, const Node* b) {
    const Mark one = *MarkOf(a->name);
    const Mark two = *MarkOf(b->name);
    return std::pair(forward ? one.rank : -one.rank, one.position) <
           std::pair(forward ? two.rank : -two.rank, two.position);
  });
  auto sorted = std::make_shared<std::vector<Node*>>(forward ? ours : theirs);
  sorted->insert(sorted->end(), forward ? theirs.begin() : ours.begin(), forward ? theirs.end() : ours.end());
  std::vector<Node*> by_time = *sorted;
  if (!forward) std::reverse(by_time.begin(), by_time.end());
  int layer = -1;
  for (Node* each : by_time) {
    if (IsLayer(each->name)) ++layer;
    if (MarkOf(each->name)) each->layer = layer;
  }
  node.parent->children = sorted;
  for (Node* each : theirs) NameByLayer(main, *each);
}

// Brings nodes of other ranks behind this rank's (backward: before), and numbers layers through.
void Sort(Tree& main, Node* from) {
  std::vector<Node*> waiting = {from};
  while (!waiting.empty()) {
    Node* const node = waiting.back();
    waiting.pop_back();
    if (MarkOf(node->name)) SortAround(main, *node);
    waiting.insert(waiting.end(), node->children->begin(), node->children->end());
  }
}

// Layers directly below the root, of which each rank has others.
void AddLayersOfRoots(Tree& main, const Trees& group) {
  std::vector<Node*>& children = *main.root->children;
  if (std::none_of(children.begin(), children.end(), [](const Node* node) { return IsLayer(node->name); })) return;
  absl::flat_hash_set<std::string> names;
  int layer = -1;
  for (const Node* node : children) {
    names.insert(node->name);
    if (!MarkOf(node->name) && IsLayer(node->name)) ++layer;
  }
  std::vector<Node*> added;
  for (size_t i = 1; i < group.size(); ++i) {
    for (Node* node : *group[i]->root->children) {
      if (!names.contains(node->name) && !node->name.starts_with(StepGraph::kCollection)) added.push_back(node);
    }
  }
  for (Node* node : added) {
    MarkAll(*node, node->rank);
    AddTo(main, *node);
  }
  std::stable_sort(added.begin(), added.end(), [](const Node* a, const Node* b) {
    const Mark one = *MarkOf(a->name);
    const Mark two = *MarkOf(b->name);
    return std::pair(one.rank, one.position) < std::pair(two.rank, two.position);
  });
  for (Node* node : added) {
    node->parent = main.root;
    children.push_back(node);
    if (IsLayer(node->name)) node->layer = ++layer;
    NameByLayer(main, *node);
  }
}

}  // namespace

Tree* MergePipeline(const Trees& group) {
  Tree* const main = group.front();
  if (group.size() < 2) return main;
  const Node::Children children = main->root->children;
  for (size_t i = 0; i < children->size(); ++i) {  // grows
    Node* const node = (*children)[i];
    if (node->kind != GraphNode::Kind::kModule || IsApart(node->name)) continue;
    MergeLayers(*main, *node, group);
    Sort(*main, node);
  }
  AddLayersOfRoots(*main, group);
  return main;
}

}  // namespace msprobe::server::merge
