#include "server/analysis/divergence/replicas.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/analysis/compare/communication.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {

// A tensor on one rank.
struct Replicas::Copy {
  uint32_t rank = 0;
  size_t table = 0;
  uint32_t entry = 0;
  uint32_t row = 0;
  std::string value;      // equal texts, equal values
  bool constant = false;  // one number throughout
};

namespace {

std::string ValueOf(const StepTable& table, const Row& row) {
  if (row.checksum.empty()) return TensorKey(table, row);
  return Cat(table.text(row.dtype), table.text(row.shape), row.checksum);
}

bool IsConstant(const Row& row) {
  const Cell& max = row.statistics[0];
  const Cell& min = row.statistics[1];
  return max.is_number() && min.is_number() && max.number() == min.number();
}

// Whether every rank of the group gets this row of the record alike.
bool IsSharedResult(std::string_view operation, const Entry& entry, const Row& row) {
  if (!row.is_tensor || row.state != RowState::kOutput) return false;
  if (operation.starts_with("all_reduce") || operation.starts_with("broadcast")) return true;
  if (!operation.starts_with("all_gather") && operation != "_all_gather_base") return false;
  const std::string_view place = row.name.substr(entry.name.size());
  return place == ".output.0" || place.starts_with(".output.0.");  // the last argument is the rank's own
}

// The copies by value, those with the most first.
template <typename Copy>
std::vector<std::vector<const Copy*>> ByValue(const std::vector<const Copy*>& copies) {
  std::map<std::string_view, std::vector<const Copy*>> groups;
  for (const Copy* copy : copies) groups[copy->value].push_back(copy);
  std::vector<std::vector<const Copy*>> sorted;
  for (auto& [value, group] : groups) sorted.push_back(std::move(group));
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return sorted;
}

// Nothing: they are alike.
template <typename Copy>
std::optional<ReplicaDifference> FindDifference(ReplicaKind kind, const std::vector<const Copy*>& copies) {
  const auto groups = ByValue(copies);
  if (groups.size() < 2) return std::nullopt;
  const bool majority = groups[0].size() > groups[1].size();
  ReplicaDifference found;
  found.kind = kind;
  const Copy* first = nullptr;
  for (const Copy* copy : copies) {
    if (majority && copy->value == groups[0].front()->value) {
      found.others.push_back(copy->rank);
      continue;
    }
    found.odd.push_back(copy->rank);
    if (first == nullptr) first = copy;
  }
  found.table = first->table;
  found.entry = first->entry;
  found.row = first->row;
  return found;
}

}  // namespace

void Replicas::JudgeParameter(const std::string& name, const std::vector<Copy>& copies, size_t ranks,
                              std::vector<ReplicaDifference>& found) {
  if (told_.contains(name)) return;
  std::vector<const Copy*> all;
  for (const Copy& copy : copies) all.push_back(&copy);
  std::vector<std::set<uint32_t>>& alike = alike_[name];
  const auto report = [&](std::optional<ReplicaDifference> difference) {
    if (!difference || told_.contains(name)) return;
    told_.insert(name);
    found.push_back(*std::move(difference));
  };
  for (const std::set<uint32_t>& group : alike) {
    std::vector<const Copy*> members;
    for (const Copy* copy : all) {
      if (group.contains(copy->rank)) members.push_back(copy);
    }
    report(FindDifference(ReplicaKind::kParameter, members));
  }
  const auto groups = ByValue(all);
  if (alike.empty() && 2 * groups[0].size() > ranks && !groups[0].front()->constant) {
    report(FindDifference(ReplicaKind::kParameter, all));
  }
  if (!alike.empty()) return;
  for (const auto& group : groups) {
    if (group.size() < 2 || group.front()->constant) continue;
    std::set<uint32_t>& members = alike.emplace_back();
    for (const Copy* copy : group) members.insert(copy->rank);
  }
}

std::vector<ReplicaDifference> Replicas::In(const std::vector<RankStep>& ranks) {
  Copies parameters;
  Copies results;
  std::vector<std::pair<const Copies*, std::string>> order;  // as the first rank that has it ran
  const auto add = [&](Copies& copies, std::string name, Copy copy) {
    auto [place, is_new] = copies.try_emplace(std::move(name));
    if (is_new) order.emplace_back(&copies, place->first);
    place->second.push_back(std::move(copy));
  };
  for (size_t i = 0; i < ranks.size(); ++i) {
    const StepTable& table = *ranks[i].table;
    std::map<std::string, uint64_t> uses;
    for (uint32_t e = 0; e < table.entries.size(); ++e) {
      const Entry& entry = table.entries[e];
      std::string use;
      if (const auto channels = ChannelsOf(table, entry, ranks[i].rank); channels.size() == 1) {
        use = Cat(channels[0], " ", uses[channels[0]]++);
      }
      const std::string_view operation = OperationOf(entry.name);
      for (uint32_t r = entry.first_row; r < entry.first_row + entry.rows; ++r) {
        const Row& row = table.rows[r];
        Copy copy{ranks[i].rank, i, e, r, ValueOf(table, row), IsConstant(row)};
        if (row.is_tensor && row.state == RowState::kParameters) {
          add(parameters, std::string(row.name), std::move(copy));
        } else if (!use.empty() && IsSharedResult(operation, entry, row)) {
          add(results, Cat(use, " ", operation, row.name.substr(entry.name.size())), std::move(copy));
        }
      }
    }
  }
  std::vector<ReplicaDifference> found;
  for (const auto& [kind, name] : order) {
    const std::vector<Copy>& copies = kind->find(name)->second;
    if (copies.size() < 2) continue;
    if (kind == &parameters) {
      JudgeParameter(name, copies, ranks.size(), found);
      continue;
    }
    std::vector<const Copy*> all;
    for (const Copy& copy : copies) all.push_back(&copy);
    if (auto difference = FindDifference(ReplicaKind::kCollective, all)) found.push_back(*std::move(difference));
  }
  return found;
}

}  // namespace msprobe::server
