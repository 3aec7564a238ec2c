#include "server/analysis/graph/step_graph.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_replace.h"
#include "server/analysis/graph/recomputed_call.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kForward = "forward";
constexpr std::string_view kBackward = "backward";
constexpr std::string_view kGradients = ".parameters_grad";

// "Module.fc.Linear" and "3" of "Module.fc.Linear.backward.3".
struct ModuleCall {
  std::string_view module;
  std::string_view number;
};
std::optional<ModuleCall> ModuleCallOf(std::string_view name, std::string_view direction) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !IsNumberPart(name.substr(dot + 1))) return std::nullopt;
  const std::string_view before = name.substr(0, dot);
  if (!before.ends_with(direction)) return std::nullopt;
  const std::string_view module = before.substr(0, before.size() - direction.size());
  if (!module.ends_with('.')) return std::nullopt;
  return ModuleCall{module.substr(0, module.size() - 1), name.substr(dot + 1)};
}

std::string Redirected(std::string_view name, std::string_view from, std::string_view to) {
  return absl::StrReplaceAll(AbslView(name), {{AbslView(from), AbslView(to)}});
}

// The module's call in the other direction; the name itself where it is no module's call in this one.
std::string Turned(std::string_view name, std::string_view from, std::string_view to) {
  const std::optional<ModuleCall> call = ModuleCallOf(name, from);
  return call ? Cat(call->module, ".", to, ".", call->number) : std::string(name);
}

GraphNode::Kind KindOf(std::string_view name) {
  for (std::string_view module : {"Module.", "Cell.", "optimizer", "clip_grad"}) {
    if (name.starts_with(module)) return GraphNode::Kind::kModule;
  }
  for (std::string_view api : {"Tensor.", "Torch.", "Functional.", "NPU.", "VF.", "Distributed.", "Aten.", "Mint.",
                               "Primitive.", "Jit.", "MintFunctional.", "MindSpeed."}) {
    if (name.starts_with(api)) return GraphNode::Kind::kApi;
  }
  return GraphNode::Kind::kModule;
}

// Whether the name is that of a module inside others: the model's own modules have no more than a name, a class, and
// the number of a model's part.
bool IsInner(const std::vector<std::string_view>& parts) {
  if (parts.size() > 7) return true;
  if (parts.size() == 7) return !(IsNumberPart(parts[1]) && IsNumberPart(parts[3]));
  return parts.size() == 6 && !IsNumberPart(parts[1]);
}

}  // namespace

class GraphBuilder {
 public:
  explicit GraphBuilder(const StepTable& table) : table_(table) {}

  StepGraph Build() {
    Index();
    AddNode(StepGraph::kRoot);
    for (const Call& call : table_.calls) {
      const std::string parent = ParentOf(call);
      const int32_t around = parent.empty() ? kRootNode : FindOrAdd(parent);
      Attach(FindOrAdd(call.name), around);
    }
    AttachOrphans();
    MoveRecomputed();
    CollectApis();
    AddGradients();
    CountMicroSteps();
    graph_.Order();
    return std::move(graph_);
  }

 private:
  GraphNode& At(int32_t node) { return graph_.nodes_[static_cast<size_t>(node)]; }

  void Index() {
    calls_.reserve(table_.calls.size());
    for (const Call& call : table_.calls) calls_.insert_or_assign(call.name, &call);
    entries_.reserve(table_.entries.size());
    for (size_t i = 0; i < table_.entries.size(); ++i) {
      entries_.emplace(table_.entries[i].name, static_cast<int32_t>(i));
    }
    const size_t nodes = table_.calls.size() + table_.calls.size() / 8 + 2;  // the root and collections are no calls
    graph_.nodes_.reserve(nodes);
    graph_.by_name_.reserve(nodes);
  }

  const Call* FindCall(std::string_view name) const {
    const auto found = calls_.find(name);
    return found == calls_.end() ? nullptr : found->second;
  }
  int32_t FindEntry(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? -1 : found->second;
  }

  // The parent as construct.json says it, or as it must have been; empty: the root.
  std::string ParentOf(const Call& call) const {
    const std::string_view parent = calls_.at(call.name)->parent;
    const std::optional<ModuleCall> backward = ModuleCallOf(call.name, kBackward);
    if (parent.empty()) {
      const std::string forward = backward                           ? Turned(call.name, kBackward, kForward)
                                  : call.name.ends_with(".backward") ? Redirected(call.name, kBackward, kForward)
                                                                     : std::string();
      const Call* const before = forward.empty() ? nullptr : FindCall(forward);
      if (before == nullptr || before->parent.empty()) return {};
      const std::string turned =
          backward ? Turned(before->parent, kForward, kBackward) : Redirected(before->parent, kForward, kBackward);
      return FindCall(turned) != nullptr ? turned : std::string();
    }
    // A module that works in place has no backward call of its own, and takes in its neighbours' ones.
    if (!backward || std::count(call.name.begin(), call.name.end(), '.') < 4 ||
        std::count(parent.begin(), parent.end(), '.') < 3 ||
        WithoutLastParts(call.name, 4) == WithoutLastParts(parent, 3)) {
      return std::string(parent);
    }
    const Call* const forward = FindCall(Turned(call.name, kBackward, kForward));
    if (forward == nullptr) return std::string(parent);
    if (forward->parent.empty()) return {};
    const std::string turned = Turned(forward->parent, kForward, kBackward);
    return FindCall(turned) != nullptr ? turned : std::string(parent);
  }

  int32_t AddNode(std::string_view name) {
    const auto number = static_cast<int32_t>(graph_.nodes_.size());
    GraphNode node;
    node.name = name;
    node.kind = KindOf(name);
    node.entry = FindEntry(name);
    graph_.nodes_.push_back(std::move(node));
    graph_.by_name_.emplace(name, number);
    return number;
  }

  int32_t FindOrAdd(std::string_view name) {
    if (const int32_t found = graph_.Find(name); found >= 0) return found;
    const Call* const call = FindCall(name);
    const int32_t number = AddNode(call != nullptr ? call->name : graph_.arena_.Add(name));
    GraphNode& node = At(number);
    if (call != nullptr) {
      node.micro_step = call->micro_step;
      node.stack = call->stack;
    }
    if (node.stack < 0 && node.entry >= 0) node.stack = table_.entries[static_cast<size_t>(node.entry)].stack;
    if (node.stack < 0) node.stack = StackOfForward(name);
    return number;
  }

  // Every call of a module has the stack of its first.
  int32_t StackOfForward(std::string_view name) const {
    int32_t forward = -1;
    if (const std::optional<ModuleCall> call = ModuleCallOf(name, kBackward)) {
      forward = graph_.Find(Cat(call->module, ".", kForward, ".0"));
    } else if (name.ends_with(".backward")) {
      forward = graph_.Find(Redirected(name, kBackward, kForward));
    }
    return forward < 0 ? -1 : graph_.node(forward).stack;
  }

  void Attach(int32_t node, int32_t parent) {
    if (node == parent || node == kRootNode || At(node).parent >= 0) return;
    At(node).parent = parent;
    At(parent).children.push_back(node);
  }

  // Whatever does not hang below the root: parents that are no calls of the step, and circles.
  void AttachOrphans() {
    std::vector<bool> reached(graph_.nodes_.size(), false);
    const auto reach = [&](int32_t from) {
      std::vector<int32_t> waiting = {from};
      while (!waiting.empty()) {
        const int32_t node = waiting.back();
        waiting.pop_back();
        if (reached[static_cast<size_t>(node)]) continue;
        reached[static_cast<size_t>(node)] = true;
        waiting.insert(waiting.end(), At(node).children.begin(), At(node).children.end());
      }
    };
    reach(kRootNode);
    for (int32_t node = 0; node < static_cast<int32_t>(graph_.nodes_.size()); ++node) {
      if (reached[static_cast<size_t>(node)]) continue;
      int32_t top = node;
      std::vector<int32_t> path;
      while (At(top).parent >= 0 && std::find(path.begin(), path.end(), top) == path.end()) {
        path.push_back(top);
        top = At(top).parent;
      }
      if (const int32_t parent = At(top).parent; parent >= 0) std::erase(At(parent).children, top);
      At(top).parent = -1;
      Attach(top, kRootNode);
      reach(top);
    }
  }

  bool IsBelow(int32_t node, int32_t above) {
    for (; node >= 0; node = At(node).parent) {
      if (node == above) return true;
    }
    return false;
  }

  // Calls directly below the root that checkpointing repeated, with their counterparts in the other direction.
  std::vector<int32_t> Recomputed() {
    std::vector<int32_t> found;
    absl::flat_hash_set<std::string> counterparts;
    for (const int32_t child : At(kRootNode).children) {
      const GraphNode& node = At(child);
      if (node.kind != GraphNode::Kind::kModule) continue;
      const bool backward = ModuleCallOf(node.name, kBackward).has_value();
      if (!backward && !ModuleCallOf(node.name, kForward)) continue;
      const std::string other =
          backward ? Turned(node.name, kBackward, kForward) : Turned(node.name, kForward, kBackward);
      const int32_t counterpart = graph_.Find(other);
      if (table_.framework == "pytorch") {
        const int32_t forward = backward ? counterpart : child;
        if (forward < 0 || !IsRecomputed(table_, At(forward).stack)) continue;
      }
      if (counterparts.contains(std::string(node.name))) {
        found.push_back(child);
      } else if (IsInner(PartsOfName(node.name)) && counterpart >= 0 && At(counterpart).parent == kRootNode) {
        found.push_back(child);
        counterparts.insert(other);
      }
    }
    return found;
  }

  void MoveRecomputed() {
    const std::vector<int32_t> recomputed = Recomputed();
    if (recomputed.empty()) return;
    absl::flat_hash_map<std::string_view, std::vector<int32_t>> originals;  // by module, in order
    for (const int32_t node : recomputed) originals[WithoutLastParts(At(node).name, 2)];
    for (size_t i = 0; i < graph_.nodes_.size(); ++i) {
      const GraphNode& node = graph_.nodes_[i];
      if (node.kind != GraphNode::Kind::kModule || node.parent <= kRootNode) continue;
      const std::optional<ModuleCall> call = ModuleCallOf(node.name, kForward);
      if (!call) continue;
      if (const auto of = originals.find(call->module); of != originals.end())
        of->second.push_back(static_cast<int32_t>(i));
    }
    absl::flat_hash_map<std::string_view, size_t> taken[2];  // by direction and module
    for (const int32_t node : recomputed) {
      const std::string_view module = WithoutLastParts(At(node).name, 2);
      const std::vector<int32_t>& candidates = originals[module];
      size_t& next = taken[ModuleCallOf(At(node).name, kForward) ? 0 : 1][module];
      if (next >= candidates.size()) continue;
      const int32_t original = candidates[next++];
      const int32_t parent = graph_.Find(Turned(At(At(original).parent).name, kForward, kBackward));
      if (parent < 0 || IsBelow(parent, node)) continue;
      std::erase(At(kRootNode).children, node);
      At(node).parent = -1;
      Attach(node, parent);
    }
  }

  void CollectApis() {
    std::vector<int32_t> children;
    children.swap(At(kRootNode).children);
    std::vector<int32_t> collected;
    int collections = 0;
    for (size_t i = 0; i < children.size();) {
      size_t end = i;
      while (end < children.size() && At(children[end]).kind == GraphNode::Kind::kApi) ++end;
      if (end < i + 2) {
        collected.push_back(children[i++]);
        continue;
      }
      const int32_t collection = AddNode(graph_.arena_.Add(Cat(StepGraph::kCollection, ".", collections++)));
      At(collection).kind = GraphNode::Kind::kCollection;
      At(collection).parent = kRootNode;
      At(collection).micro_step = At(children[i]).micro_step;
      for (; i < end; ++i) {
        At(children[i]).parent = collection;
        At(collection).children.push_back(children[i]);
      }
      collected.push_back(collection);
    }
    At(kRootNode).children = std::move(collected);
  }

  void AddGradients() {
    absl::flat_hash_map<std::string_view, int32_t> last;  // by module: its last backward call
    for (size_t i = 0; i < graph_.nodes_.size(); ++i) {
      const std::optional<ModuleCall> call = ModuleCallOf(graph_.nodes_[i].name, kBackward);
      if (!call) continue;
      const auto [known, added] = last.try_emplace(call->module, static_cast<int32_t>(i));
      if (added) continue;
      const std::string_view number = ModuleCallOf(At(known->second).name, kBackward)->number;
      if (std::pair(call->number.size(), call->number) > std::pair(number.size(), number)) {
        known->second = static_cast<int32_t>(i);
      }
    }
    for (const Entry& entry : table_.entries) {
      std::string_view module = entry.name;
      if (const size_t dot = module.rfind('.'); dot != std::string_view::npos && IsNumberPart(module.substr(dot + 1))) {
        module = module.substr(0, dot);
      }
      if (!module.ends_with(kGradients) || graph_.Find(entry.name) >= 0) continue;
      module.remove_suffix(kGradients.size());
      const auto backward = last.find(module);
      if (backward == last.end()) continue;
      const int32_t node = AddNode(entry.name);
      At(node).kind = GraphNode::Kind::kModule;
      At(node).micro_step = At(backward->second).micro_step;
      Attach(node, backward->second);
    }
  }

  void CountMicroSteps() {
    if (table_.micro_steps) {
      graph_.micro_steps_ = *table_.micro_steps + 1;
      return;
    }
    uint32_t micro_step = 0;
    bool went_backward = false;
    absl::flat_hash_set<std::string_view> called;  // modules, in this micro step
    for (const int32_t child : At(kRootNode).children) {
      const std::string_view name = At(child).name;
      const std::optional<ModuleCall> forward = ModuleCallOf(name, kForward);
      if (forward && !IsRecomputed(table_, At(child).stack)) {
        if (went_backward && called.contains(forward->module)) {
          ++micro_step;
          went_backward = false;
          called.clear();
        }
        called.insert(forward->module);
      } else if (ModuleCallOf(name, kBackward)) {
        went_backward = true;
      }
      graph_.SetMicroStep(child, micro_step);
    }
    graph_.micro_steps_ = micro_step + 1;
  }

  const StepTable& table_;
  StepGraph graph_;
  absl::flat_hash_map<std::string_view, const Call*> calls_;
  absl::flat_hash_map<std::string_view, int32_t> entries_;
};

absl::StatusOr<StepGraph> StepGraph::Make(const StepTable& table) {
  if (table.calls.empty()) {
    return absl::InvalidArgumentError(
        "there is no construct.json, or an empty one: nothing says which module called what; capture with level L0 or "
        "mix");
  }
  return GraphBuilder(table).Build();
}

StepGraph StepGraph::Of(std::vector<GraphNode> nodes, uint32_t micro_steps) {
  StepGraph graph;
  graph.nodes_ = std::move(nodes);
  graph.micro_steps_ = micro_steps;
  for (size_t i = 0; i < graph.nodes_.size(); ++i)
    graph.by_name_.emplace(graph.nodes_[i].name, static_cast<int32_t>(i));
  graph.Order();
  return graph;
}

void StepGraph::Order() {
  order_.reserve(nodes_.size());
  std::vector<std::pair<int32_t, size_t>> path = {{0, 0}};  // node, next child
  while (!path.empty()) {
    auto& [at, next] = path.back();
    const std::vector<int32_t>& children = node(at).children;
    if (next < children.size()) {
      path.emplace_back(children[next++], 0);
    } else {
      order_.push_back(at);
      path.pop_back();
    }
  }
}

int32_t StepGraph::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

void StepGraph::SetMicroStep(int32_t node, uint32_t micro_step) {
  std::vector<int32_t> waiting = {node};
  while (!waiting.empty()) {
    GraphNode& at = nodes_[static_cast<size_t>(waiting.back())];
    waiting.pop_back();
    at.micro_step = micro_step;
    waiting.insert(waiting.end(), at.children.begin(), at.children.end());
  }
}

}  // namespace msprobe::server
