#include "server/analysis/graph/tensor_merge.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "server/analysis/graph/merged_values.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server::merge {
namespace {

void NoteRanks(Node& main, const std::vector<Node*>& others) {
  std::string ranks = Cat(main.rank);
  for (const Node* other : others) ranks += Cat(", ", other->rank);
  main.notes.push_back(Cat(
      "This data is the merged data after tensor parallelism(TP), and the data is merged from rank [", ranks, "]."));
}

// The same node of the others; none unless all have it, with the same modules around it.
std::vector<Node*> PartnersOf(const Node& node, const Trees& group, const Partners& partners) {
  std::vector<Node*> found;
  const size_t mark = node.name.find("_rank");
  std::optional<uint32_t> rank;
  size_t end = mark;
  if (!partners.empty() && mark != std::string::npos) {
    end = mark + 5;
    while (end < node.name.size() && node.name[end] >= '0' && node.name[end] <= '9') ++end;
    uint32_t number = 0;
    if (end < node.name.size() && node.name[end] == '.' &&
        absl::SimpleAtoi(node.name.substr(mark + 5, end - mark - 5), &number)) {
      rank = number;
    }
  }
  const std::vector<uint32_t>* others = nullptr;
  if (rank) {
    const auto known = partners.find(*rank);
    if (known == partners.end() || known->second.size() + 1 != group.size()) return {};
    others = &known->second;
  }
  for (size_t i = 1; i < group.size(); ++i) {
    const std::string name =
        rank ? Cat(node.name.substr(0, mark), "_rank", (*others)[i - 1], node.name.substr(end)) : node.name;
    Node* const other = group[i]->nodes.Find(name);
    if (other == nullptr || Around(node) != Around(*other)) return {};
    found.push_back(other);
  }
  return found;
}

// "RowParallelLinear" and "forward" of "Module.x.RowParallelLinear.forward.0".
bool IsCall(const Node& node, std::string_view direction, std::string_view of) {
  const std::vector<std::string_view> parts = PartsOfName(node.name);
  return node.kind == GraphNode::Kind::kModule && parts.size() >= 4 && parts[parts.size() - 2] == direction &&
         parts[parts.size() - 3].find(of) != std::string_view::npos;
}

// A rank's matmul has a part of the sum; what it passes on is reduced.
void TakeReduced(Node& node, const Trees& group, const Partners& partners) {
  if (!IsCall(node, "forward", "RowParallelLinear") && !IsCall(node, "backward", "ColumnParallelLinear")) return;
  std::vector<Node*> products;
  std::vector<Node*> reductions;
  for (Node* child : *node.children) {
    if (absl::StrContains(child->name, "matmul")) products.push_back(child);
    if (absl::StrContains(child->name, "_reduce_scatter_base") ||
        absl::StrContains(child->name, "reduce_scatter_tensor") || absl::StrContains(child->name, "all_reduce")) {
      reductions.push_back(child);
    }
  }
  for (Node* product : products) {
    if (product->outputs.empty()) continue;
    Value& result = product->outputs.front();
    for (Node* reduction : std::vector<Node*>(reductions)) {
      const size_t input = absl::StrContains(reduction->name, "all_reduce") ? 0 : 1;
      if (reduction->outputs.empty() || reduction->inputs.size() <= input ||
          !SameValues(result, reduction->inputs[input], /*uncertain=*/false)) {
        continue;
      }
      const std::vector<Node*> others = PartnersOf(*product, group, partners);
      const Differences inputs = DifferencesOf(*product, others, &Node::inputs, /*by_values=*/true);
      if (!inputs.empty()) {
        NoteRanks(*product, others);
        MergeValues(inputs, product->notes);
      }
      result.row.statistics = reduction->outputs.front().row.statistics;
      result.row.extended = -1;
      product->notes.push_back(Cat("The output of this data is merged from ", reduction->outputs.front().name));
      std::erase(reductions, reduction);
      break;
    }
  }
}

// From a column-parallel linear layer to the row-parallel one that ends the block.
void MergeColumnToRow(Node& node, const Trees& group, const Partners& partners) {
  if (!node.notes.empty() || node.parent == nullptr || !IsCall(node, "forward", "ColumnParallelLinear")) return;
  const std::vector<Node*>& around = *node.parent->children;
  size_t begin = around.size();
  size_t end = around.size();
  for (size_t i = 0; i < around.size(); ++i) {
    if (absl::StrContains(around[i]->name, node.name)) {
      begin = i;
    } else if (absl::StrContains(around[i]->name, "RowParallelLinear")) {
      end = i;
    }
  }
  if (begin == around.size() || end == around.size() || end <= begin) return;
  std::vector<Node*> waiting(around.begin() + static_cast<ptrdiff_t>(begin),
                             around.begin() + static_cast<ptrdiff_t>(end) + 1);
  const std::string first = waiting.front()->name;
  const std::string last = waiting.back()->name;
  while (!waiting.empty()) {
    Node& at = *waiting.back();
    waiting.pop_back();
    waiting.insert(waiting.end(), at.children->rbegin(), at.children->rend());
    if (!at.notes.empty() || at.name.starts_with("Distributed")) continue;
    const std::vector<Node*> others = PartnersOf(at, group, partners);
    Differences inputs = DifferencesOf(at, others, &Node::inputs, /*by_values=*/false);
    Differences outputs = DifferencesOf(at, others, &Node::outputs, /*by_values=*/false);
    if (inputs.empty() && outputs.empty()) continue;
    NoteRanks(at, others);
    // The whole of a tensor goes into the first layer, and comes out of the last.
    const auto belongs_to = [&](const std::string& layer) {
      return at.name == layer ||
             (absl::StrContains(at.name, "matmul") && at.parent != nullptr && at.parent->name == layer);
    };
    if (belongs_to(first)) {
      std::erase_if(inputs, [](const Differing& each) { return each.key == "input.0"; });
    } else if (belongs_to(last)) {
      outputs.clear();
      std::erase_if(inputs, [](const Differing& each) { return each.key == "parameters.bias"; });
    }
    MergeValues(inputs, at.notes);
    MergeValues(outputs, at.notes);
  }
}

}  // namespace

Tree* MergeTensors(const Trees& group, const Partners& partners) {
  Tree* const main = group.front();
  if (group.size() < 2) return main;
  const std::vector<Node*> nodes = main->nodes.InOrder();
  for (Node* node : nodes) {
    if (node->parent == nullptr || node->parent->kind != GraphNode::Kind::kModule || IsApart(node->parent->name) ||
        node->name.starts_with("Distributed") || !node->notes.empty()) {
      continue;
    }
    TakeReduced(*node, group, partners);
    const std::vector<Node*> others = PartnersOf(*node, group, partners);
    const Differences inputs = DifferencesOf(*node, others, &Node::inputs, /*by_values=*/true);
    const Differences outputs = DifferencesOf(*node, others, &Node::outputs, /*by_values=*/true);
    if (inputs.empty() && outputs.empty()) continue;
    NoteRanks(*node, others);
    MergeValues(inputs, node->notes);
    MergeValues(outputs, node->notes);
  }
  for (Node* node : nodes) MergeColumnToRow(*node, group, partners);
  return main;
}

}  // namespace msprobe::server::merge
