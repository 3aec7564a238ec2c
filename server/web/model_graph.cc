#include "server/web/model_graph.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/divergence/overflow.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint16_t kMaxTensors = 4096;  // names of tensors within their records; others have none

size_t Index(int32_t node) { return static_cast<size_t>(node); }

// Whether a value hides another one.
bool IsFarther(double value, double other) {
  if (std::isnan(value) || std::isnan(other)) return std::isnan(value) && !std::isnan(other);
  return std::abs(value) > std::abs(other);
}

bool IsResult(const Row& row) { return row.state == RowState::kOutput || row.state == RowState::kParametersGrad; }

// A tensor that has nothing to compare says nothing of its record.
void Worsen(std::optional<Verdict>& worst, std::optional<Verdict> verdict) {
  if (!verdict) return;
  const auto rank = [](Verdict of) { return of == Verdict::kUnknown ? -1 : static_cast<int>(of); };
  if (!worst || rank(*verdict) > rank(*worst)) worst = verdict;
}

}  // namespace

absl::StatusOr<ModelGraph> ModelGraph::Of(const StepTable& table) {
  auto graph = StepGraph::Make(table);
  if (!graph.ok()) return graph.status();
  if (graph->nodes().size() > kMaxNodes) {
    return absl::InvalidArgumentError(
        Cat("the step has ", graph->nodes().size(), " calls, and the page draws at most ", kMaxNodes));
  }
  ModelGraph made;
  std::vector<GraphNode> nodes = graph->nodes();
  for (GraphNode& node : nodes) {
    node.name = made.arena_.Add(node.name);
    node.stack = -1;
  }
  made.graph_ = StepGraph::Of(std::move(nodes), graph->micro_steps());
  made.edges_.emplace(*made.graph_, FlowsOf(table));
  made.facts_.resize(made.graph_->nodes().size());
  made.ended_.resize(made.facts_.size());
  for (uint32_t i = 0; i < made.graph_->order().size(); ++i) made.ended_[Index(made.graph_->order()[i])] = i;
  made.AddStatistics(table);
  made.AddLevels(table);
  made.Gather();
  for (int32_t node = 1; node < static_cast<int32_t>(made.facts_.size()); ++node) {
    if (const uint32_t key = made.KeyOf(node); key != 0) made.modules_.emplace_back(key, node);
  }
  std::sort(made.modules_.begin(), made.modules_.end());
  return made;
}

void ModelGraph::AddStatistics(const StepTable& table) {
  values_.resize(facts_.size());
  known_.resize(facts_.size(), 0);
  tensors_.emplace_back();
  absl::flat_hash_map<std::string, uint32_t> known_tensors = {{"", 0}};
  for (size_t i = 0; i < facts_.size(); ++i) {
    const int32_t number = graph_->nodes()[i].entry;
    if (number < 0) continue;
    const Entry& entry = table.entries[Index(number)];
    const auto begin = table.rows.begin() + entry.first_row, end = begin + entry.rows;
    const bool results = std::any_of(begin, end, [](const Row& row) { return IsResult(row) && HasStatistics(row); });
    const Row* tensor = nullptr;
    for (auto row = begin; row != end; ++row) {
      if (results && !IsResult(*row)) continue;
      if (tensor == nullptr && row->is_tensor) tensor = &*row;
      for (size_t j = 0; j < kStatisticsOf; ++j) {
        const std::optional<double> value = StatisticOf(table, *row, static_cast<Statistic>(j + 1));
        if (!value || ((known_[i] >> j & 1) != 0 && !IsFarther(*value, values_[i][j]))) continue;
        values_[i][j] = static_cast<float>(*value);
        known_[i] = static_cast<uint16_t>(known_[i] | 1U << j);
      }
    }
    if (tensor == nullptr || !tensor->name.starts_with(entry.name)) continue;
    const std::string within(tensor->name.substr(entry.name.size()));
    const auto found = known_tensors.find(within);
    if (found != known_tensors.end()) {
      facts_[i].tensor = found->second;
    } else if (tensors_.size() < kMaxTensors) {
      facts_[i].tensor = static_cast<uint32_t>(tensors_.size());
      known_tensors.emplace(within, facts_[i].tensor);
      tensors_.push_back(within);
    }
  }
}

void ModelGraph::AddLevels(const StepTable& table) {
  const std::vector<OverflowLevel> levels = OverflowLevels(table);
  int32_t first = -1;
  for (size_t i = 0; i < facts_.size(); ++i) {
    const int32_t entry = graph_->nodes()[i].entry;
    if (entry < 0) continue;
    facts_[i].level = levels[Index(entry)];
    if (facts_[i].level == OverflowLevel::kCritical && (first < 0 || entry < first)) first = entry;
  }
  SetFirst(first);
}

void ModelGraph::AddVerdicts(const StepTable& table, const std::vector<std::optional<Verdict>>& by_row) {
  for (size_t i = 0; i < facts_.size(); ++i) {
    const int32_t number = graph_->nodes()[i].entry;
    if (number < 0) continue;
    const Entry& entry = table.entries[Index(number)];
    for (uint32_t row = entry.first_row; row < entry.first_row + entry.rows; ++row) {
      Worsen(facts_[i].verdict, by_row[row]);
    }
  }
  compared_ = true;
  Gather();
}

void ModelGraph::SetFirst(int32_t entry) {
  first_ = -1;
  for (size_t i = 0; entry >= 0 && i < facts_.size(); ++i) {
    if (graph_->nodes()[i].entry == entry) first_ = static_cast<int32_t>(i);
  }
}

void ModelGraph::Gather() {
  for (Facts& facts : facts_) {
    facts.level_inside = facts.level;
    facts.verdict_inside = facts.verdict;
    facts.inside = 0;
  }
  for (const int32_t number : graph_->order()) {  // children first
    const int32_t parent = graph_->node(number).parent;
    if (parent < 0) continue;
    const Facts& facts = facts_[Index(number)];
    Facts& around = facts_[Index(parent)];
    around.level_inside = std::max(around.level_inside, facts.level_inside);
    Worsen(around.verdict_inside, facts.verdict_inside);
    around.inside += facts.inside + 1;
  }
}

ModelGraph::Mark ModelGraph::MarkOf(int32_t node) const {
  if (node == first_) return Mark::kFirst;
  const Facts& of = facts(node);
  if (compared_) {
    if (!of.verdict_inside) return Mark::kFine;
    if (IsDifference(*of.verdict_inside)) return Mark::kBad;
    return *of.verdict_inside == Verdict::kWithin ? Mark::kSome : Mark::kFine;
  }
  if (of.level_inside >= OverflowLevel::kHigh) return Mark::kBad;
  return of.level_inside == OverflowLevel::kMedium ? Mark::kSome : Mark::kFine;
}

bool ModelGraph::OnPath(int32_t from, int32_t to) const {
  return first_ >= 0 && ended_[Index(from)] >= ended_[Index(first_)] && MarkOf(from) >= Mark::kBad &&
         MarkOf(to) >= Mark::kBad;
}

std::optional<float> ModelGraph::ValueOf(int32_t node, Statistic statistic) const {
  const auto at = static_cast<size_t>(statistic) - 1;
  if ((known_[Index(node)] >> at & 1) == 0) return std::nullopt;
  return values_[Index(node)][at];
}

std::optional<std::pair<float, float>> ModelGraph::RangeOf(Statistic statistic) const {
  std::vector<float> sizes;
  for (int32_t node = 0; node < static_cast<int32_t>(facts_.size()); ++node) {
    const std::optional<float> value = ValueOf(node, statistic);
    if (value && std::isfinite(*value) && *value != 0) sizes.push_back(std::abs(*value));
  }
  if (sizes.empty()) return std::nullopt;
  const auto at = [&](double share) {
    const auto place = sizes.begin() + std::lround(share * static_cast<double>(sizes.size() - 1));
    std::nth_element(sizes.begin(), place, sizes.end());
    return *place;
  };
  const float low = at(0.01);
  return std::pair(low, at(0.99));
}

uint32_t ModelGraph::KeyOf(int32_t node) const {
  if (graph_->node(node).children.empty()) return 0;
  const std::string_view name = graph_->node(node).name;
  return std::max(1U, static_cast<uint32_t>(XXH3_64bits(name.data(), name.size())));
}

std::vector<int32_t> ModelGraph::ModulesOf(uint32_t key) const {
  std::vector<int32_t> modules;
  for (auto at = std::lower_bound(modules_.begin(), modules_.end(), std::pair(key, 0));
       at != modules_.end() && at->first == key; ++at) {
    modules.push_back(at->second);
  }
  return modules;
}

std::shared_ptr<const GraphPicture> ModelGraph::PictureOf(const std::set<int32_t>& open) const {
  const auto is_asked = [&](const auto& kept) { return kept.first == open; };
  {
    absl::MutexLock lock(&pictures_->mu);
    auto& kept = pictures_->made;
    const auto found = std::find_if(kept.begin(), kept.end(), is_asked);
    if (found != kept.end()) {
      std::rotate(kept.begin(), found, found + 1);
      return kept.front().second;
    }
  }
  auto made = std::make_shared<const GraphPicture>(*graph_, *edges_, open);
  absl::MutexLock lock(&pictures_->mu);
  auto& kept = pictures_->made;
  std::erase_if(kept, is_asked);
  kept.insert(kept.begin(), {open, made});
  if (kept.size() > kPictures) kept.pop_back();
  return made;
}

void ModelGraph::Compare(const StepTable& target, ModelGraph& ours, const StepTable& golden, ModelGraph& theirs,
                         const StepComparison& comparison, int32_t first, int32_t golden_first) {
  std::vector<std::optional<Verdict>> target_rows(target.rows.size()), golden_rows(golden.rows.size());
  for (const ComparedRow& row : comparison.rows) {
    if (row.target != kNoRow) target_rows[Index(row.target)] = row.verdict;
    if (row.golden != kNoRow) golden_rows[Index(row.golden)] = row.verdict;
  }
  ours.AddVerdicts(target, target_rows);
  theirs.AddVerdicts(golden, golden_rows);
  ours.SetFirst(first);
  theirs.SetFirst(golden_first);
  const GraphMatch match = AcrossFrameworks(target, golden)
                               ? MatchNodesByEntries(ours.graph(), theirs.graph(),
                                                     EntriesByMapping(target, golden, MappingFor({}, target, golden)))
                               : MatchNodes(ours.graph(), theirs.graph());
  for (size_t i = 0; i < ours.facts_.size(); ++i) ours.facts_[i].partner = match.golden_of[i];
  for (size_t i = 0; i < theirs.facts_.size(); ++i) theirs.facts_[i].partner = match.target_of[i];
}

}  // namespace msprobe::server
