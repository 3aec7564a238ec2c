#include "server/analysis/graph/graph_match.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/graph/step_graph.h"

namespace msprobe::server {
namespace {

GraphMatch Unmatched(const StepGraph& target, const StepGraph& golden) {
  return {std::vector<int32_t>(target.nodes().size(), -1), std::vector<int32_t>(golden.nodes().size(), -1)};
}

void Join(GraphMatch& match, int32_t target, int32_t golden) {
  match.golden_of[static_cast<size_t>(target)] = golden;
  match.target_of[static_cast<size_t>(golden)] = target;
}

// "Functional.linear.forward" of "Functional.linear.19.forward" and of "Functional.linear_rank2.19.forward".
std::string WithoutCallNumber(std::string_view name) {
  std::string kept;
  size_t from = 0;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    size_t end = dot + 1;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (end == dot + 1 || end == name.size() || name[end] != '.') continue;
    kept.append(name, from, dot - from);
    from = end;
    dot = end;
  }
  kept.append(name, from, name.size() - from);
  if (const size_t rank = kept.find("_rank"); rank != std::string::npos) {
    size_t end = rank + 5;
    while (end < kept.size() && kept[end] >= '0' && kept[end] <= '9') ++end;
    if (end > rank + 5) kept.erase(rank, end - rank);
  }
  return kept;
}

// API calls directly inside of a node, by name without count and place among those of that name.
absl::flat_hash_map<std::pair<std::string, int>, int32_t> ApisIn(const StepGraph& graph, int32_t node) {
  absl::flat_hash_map<std::pair<std::string, int>, int32_t> apis;
  absl::flat_hash_map<std::string, int> count;
  for (const int32_t child : graph.node(node).children) {
    if (graph.node(child).kind != GraphNode::Kind::kApi) continue;
    std::string name = WithoutCallNumber(graph.node(child).name);
    const int number = count[name]++;
    apis.emplace(std::pair(std::move(name), number), child);
  }
  return apis;
}

}  // namespace

GraphMatch MatchNodes(const StepGraph& target, const StepGraph& golden) {
  GraphMatch match = Unmatched(target, golden);
  Join(match, kRootNode, kRootNode);
  // A node's parent comes after it in order().
  for (size_t i = target.order().size(); i-- > 0;) {
    const int32_t node = target.order()[i];
    if (node == kRootNode) continue;
    const int32_t parent = match.golden_of[static_cast<size_t>(target.node(node).parent)];
    const int32_t partner = parent < 0 ? -1 : golden.Find(target.node(node).name);
    if (partner > kRootNode && golden.node(partner).parent == parent) Join(match, node, partner);
  }
  return match;
}

GraphMatch MatchNodesFuzzily(const StepGraph& target, const StepGraph& golden) {
  GraphMatch match = Unmatched(target, golden);
  for (const int32_t node : target.order()) {
    if (target.node(node).kind == GraphNode::Kind::kApi) continue;
    const int32_t partner = golden.Find(target.node(node).name);
    if (partner < 0) continue;
    Join(match, node, partner);
    const auto theirs = ApisIn(golden, partner);
    for (const auto& [key, api] : ApisIn(target, node)) {
      if (const auto found = theirs.find(key); found != theirs.end()) Join(match, api, found->second);
    }
  }
  return match;
}

GraphMatch MatchNodesByEntries(const StepGraph& target, const StepGraph& golden,
                               const std::vector<int32_t>& golden_entry_of) {
  absl::flat_hash_map<int32_t, int32_t> nodes;  // of the golden graph, by entry
  for (size_t i = 0; i < golden.nodes().size(); ++i) {
    if (golden.nodes()[i].entry >= 0) nodes.emplace(golden.nodes()[i].entry, static_cast<int32_t>(i));
  }
  GraphMatch match = Unmatched(target, golden);
  std::vector<int32_t> waiting = {kRootNode};  // by depth, as mindstudio-probe goes
  for (size_t i = 0; i < waiting.size(); ++i) {
    const GraphNode& node = target.node(waiting[i]);
    waiting.insert(waiting.end(), node.children.begin(), node.children.end());
    int32_t partner = -1;
    if (node.entry < 0) {
      partner = golden.Find(node.name);
    } else if (const auto found = nodes.find(golden_entry_of[static_cast<size_t>(node.entry)]); found != nodes.end()) {
      partner = found->second;
    }
    if (partner >= 0) Join(match, waiting[i], partner);
  }
  return match;
}

void AlignMicroSteps(const StepGraph& target, const GraphMatch& match, StepGraph& golden) {
  for (const int32_t child : golden.node(kRootNode).children) {
    const int32_t partner = match.target_of[static_cast<size_t>(child)];
    if (partner >= 0) golden.SetMicroStep(child, target.node(partner).micro_step);
  }
}

}  // namespace msprobe::server
