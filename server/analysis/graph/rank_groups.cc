#include "server/analysis/graph/rank_groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "server/format/cat.h"

namespace msprobe::server::merge {
namespace {

// The numbers of "[0, 1]".
std::vector<uint32_t> NumbersIn(std::string_view text) {
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    uint32_t number = 0;
    if (end > i && absl::SimpleAtoi(AbslView(text.substr(i, end - i)), &number)) numbers.push_back(number);
    i = end + 1;
  }
  return numbers;
}

const Cell* ArgumentOf(const Node& node, std::string_view argument) {
  const std::string name = Cat(node.name, ".input.", argument);
  for (const Value& value : node.inputs) {
    if (value.name == name) return &value.row.statistics[0];
  }
  return nullptr;
}

std::optional<uint32_t> RankIn(const Cell& cell) {
  if (cell.kind == Cell::Kind::kInteger) return static_cast<uint32_t>(cell.integer);
  uint32_t rank = 0;
  if (cell.kind == Cell::Kind::kText && absl::SimpleAtoi(AbslView(cell.view()), &rank)) return rank;
  return std::nullopt;
}

// Which rank a rank sends to first.
std::optional<uint32_t> NextOf(const Tree& tree) {
  for (const Node* node : tree.nodes.InOrder()) {
    if (!node->name.starts_with("Distributed.")) continue;
    if (absl::StrContains(node->name, ".batch_isend_irecv.")) {
      const auto entry = std::find_if(tree.table->entries.begin(), tree.table->entries.end(),
                                      [&](const Entry& each) { return each.name == node->name; });
      if (entry == tree.table->entries.end()) continue;
      for (const PointToPoint& each : tree.table->messages) {
        if (each.row < entry->first_row || each.row >= entry->first_row + entry->rows) continue;
        if (each.op == "isend" && each.peer != tree.rank) return static_cast<uint32_t>(each.peer);
      }
    } else if (absl::StrContains(node->name, ".send.") || absl::StrContains(node->name, ".isend.")) {
      const Cell* const to = ArgumentOf(*node, "dst");
      if (const std::optional<uint32_t> rank = to == nullptr ? std::nullopt : RankIn(*to)) return rank;
    }
  }
  return std::nullopt;
}

}  // namespace

RankGroups TensorGroups(const std::deque<Tree>& trees, const ParallelLayout& layout) {
  RankGroups groups;
  for (const Tree& tree : trees) {
    for (const Node* node : tree.nodes.InOrder()) {
      if (!absl::StrContains(node->name, "reduce_scatter") && !absl::StrContains(node->name, "all_reduce")) continue;
      const Cell* const group = ArgumentOf(*node, "group");
      const std::vector<uint32_t> ranks =
          group == nullptr || group->kind != Cell::Kind::kText ? std::vector<uint32_t>() : NumbersIn(group->view());
      if (!ranks.empty() && std::find(groups.begin(), groups.end(), ranks) == groups.end()) groups.push_back(ranks);
      break;
    }
  }
  return !groups.empty() && groups[0].size() == layout.tensor ? groups : GroupsOf(layout, "tp");
}

RankGroups PipelineGroups(const std::deque<Tree>& trees, const ParallelLayout& layout) {
  std::map<uint32_t, uint32_t> next;
  std::vector<uint32_t> senders;
  for (const Tree& tree : trees) {
    if (const std::optional<uint32_t> to = NextOf(tree)) {
      next[tree.rank] = *to;
      senders.push_back(tree.rank);
    }
  }
  RankGroups groups;
  absl::flat_hash_set<uint32_t> seen;
  for (uint32_t rank : senders) {
    std::vector<uint32_t> group;
    while (next.contains(rank) && seen.insert(rank).second) {
      group.push_back(rank);
      rank = next[rank];
    }
    if (!group.empty()) groups.push_back(std::move(group));
  }
  return !groups.empty() && groups[0].size() == layout.pipeline ? groups : GroupsOf(layout, "pp");
}

}  // namespace msprobe::server::merge
