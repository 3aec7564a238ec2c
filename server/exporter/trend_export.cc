#include "server/exporter/trend_export.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "server/analysis/graph/recomputed_call.h"
#include "server/analysis/graph/step_graph.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// Plans of more rows than these are made anew: a row's plan costs 24 bytes.
constexpr size_t kMaxPlannedRows = 1'000'000;

const std::vector<std::string> kColumns = {"norm", "max", "min", "mean"};
const std::vector<std::string> kCounts = {"nans", "zeros"};

bool IsFloating(std::string_view dtype) { return absl::StrContains(absl::AsciiStrToLower(AbslView(dtype)), "float"); }

std::optional<double> KnownNumber(const Cell& cell) {
  return cell.is_number() ? std::optional(cell.number()) : std::nullopt;
}

using Values = std::array<std::optional<double>, 6>;

Values ValuesOf(const StepTable& table, const Row& row) {
  const auto& [max, min, mean, norm] = row.statistics;
  Values values = {KnownNumber(norm), KnownNumber(max), KnownNumber(min), KnownNumber(mean)};
  if (row.extended < 0) return values;
  const ExtendedStatistics& more = table.extended[static_cast<size_t>(row.extended)];
  // Those that mindstudio-probe's dumps leave out, of 64-bit numbers.
  if (!values[0] && more.has_norm) values[0] = more.norm;
  if (!values[3] && more.has_mean) values[3] = more.mean;
  if (more.has_counts) {
    values[4] = static_cast<double>(more.nan_count);
    values[5] = static_cast<double>(more.zero_count);
  }
  return values;
}

// Which stacks of the table are those of calls that checkpointing repeated.
std::vector<bool> RecomputedStacks(const StepTable& table) {
  std::vector<bool> recomputed(table.stacks.size());
  for (size_t i = 0; i < recomputed.size(); ++i) recomputed[i] = IsRecomputed(table, static_cast<int32_t>(i));
  return recomputed;
}

std::optional<TrendRecord> RecordOf(std::string_view name, int32_t stack, const std::vector<bool>& recomputed) {
  std::optional<TrendRecord> record = TrendRecordOf(name);
  if (record && record->metric == TrendMetric::kForward && stack >= 0 && recomputed[static_cast<size_t>(stack)]) {
    record->metric = TrendMetric::kRecompute;
  }
  return record;
}

// The number of each entry's call, counted anew in each micro step: a target has the same number in all of them. What
// is computed again has the number of what it repeats.
std::vector<uint64_t> CallsInMicroSteps(const StepTable& table, const std::vector<uint32_t>& micro_steps,
                                        const std::vector<bool>& recomputed) {
  std::map<std::tuple<uint32_t, TrendMetric, std::string>, std::vector<std::pair<uint64_t, size_t>>> groups;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    if (auto record = RecordOf(table.entries[i].name, table.entries[i].stack, recomputed)) {
      groups[{micro_steps[i], record->metric, std::move(record->name)}].emplace_back(record->call, i);
    }
  }
  std::vector<uint64_t> calls(table.entries.size());
  for (auto& [name, group] : groups) {
    std::sort(group.begin(), group.end());
    for (size_t i = 0; i < group.size(); ++i) calls[group[i].second] = i;
  }
  return calls;
}

}  // namespace

absl::Status TrendExport::Begin(const StepTable& table) {
  counts_ = std::any_of(table.extended.begin(), table.extended.end(),
                        [](const ExtendedStatistics& more) { return more.has_counts; });
  std::vector<std::string> columns = kColumns;
  if (counts_) columns.insert(columns.end(), kCounts.begin(), kCounts.end());
  std::vector<TrendDatabase::Metric> metrics;
  for (const char* name : kTrendMetrics) metrics.push_back({name, columns});
  auto database = TrendDatabase::Create(path_, std::move(metrics), columns);
  if (!database.ok()) return database.status();
  database_ = *std::move(database);
  return absl::OkStatus();
}

absl::StatusOr<TrendExport::Plan> TrendExport::Make(const StepTable& table) {
  Plan plan;
  const std::vector<bool> recomputed = RecomputedStacks(table);
  std::vector<uint64_t> calls;
  std::vector<uint32_t> micro_steps(table.entries.size(), 0);
  if (options_.micro_steps) {
    // Without calls, nothing says where another micro step begins: there is one.
    if (!table.calls.empty()) {
      auto graph = StepGraph::Make(table);
      if (!graph.ok()) return graph.status();
      plan.micro_steps = graph->micro_steps();
      for (const GraphNode& node : graph->nodes()) {
        if (node.entry >= 0) micro_steps[static_cast<size_t>(node.entry)] = node.micro_step;
      }
    }
    calls = CallsInMicroSteps(table, micro_steps, recomputed);
  }
  // In the order in which mindstudio-probe numbers targets: by metric, and the parameters of a call after its results.
  std::vector<std::pair<Place, TrendTarget>> found;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const Entry& entry = table.entries[i];
    std::string name(entry.name);
    for (const auto& [from, to] : options_.renames) absl::StrReplaceAll({{from, to}}, &name);
    const std::optional<TrendRecord> record = RecordOf(name, entry.stack, recomputed);
    if (!record) continue;
    for (const bool parameters : {false, true}) {
      for (uint32_t row = entry.first_row; row < entry.first_row + entry.rows; ++row) {
        const Row& tensor = table.rows[row];
        if (!tensor.is_tensor || (tensor.state == RowState::kParameters) != parameters ||
            !tensor.name.starts_with(entry.name) || !IsFloating(table.text(tensor.dtype))) {
          continue;
        }
        TrendTarget target{Cat(record->name, tensor.name.substr(entry.name.size())), 0,
                           static_cast<int64_t>(calls.empty() ? record->call : calls[i])};
        found.emplace_back(Place{row, micro_steps[i], 0, record->metric}, std::move(target));
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first.metric < b.first.metric; });
  plan.places.reserve(found.size());
  for (auto& [place, target] : found) {
    auto number = database_->Number(target);
    if (!number.ok()) return number.status();
    place.target = *number;
    const auto metric = static_cast<size_t>(place.metric);
    if (absl::Status status = database_->AddTags(*number, metric, TagsOfTensor(target.name)); !status.ok()) {
      return status;
    }
    plan.places.push_back(place);
  }
  return plan;
}

absl::StatusOr<const TrendExport::Plan*> TrendExport::PlanOf(const StepTable& table) {
  if (const auto known = plans_.find(table.layout); table.layout != nullptr && known != plans_.end()) {
    return &known->second;
  }
  auto plan = Make(table);
  if (!plan.ok()) return plan.status();
  if (table.layout == nullptr) {
    plan_ = *std::move(plan);
    return &plan_;
  }
  if (planned_rows_ > kMaxPlannedRows) {
    plans_.clear();
    planned_rows_ = 0;
  }
  planned_rows_ += plan->places.size();
  plan->layout = table.borrowed;
  return &plans_.emplace(table.layout, *std::move(plan)).first->second;
}

absl::Status TrendExport::Add(uint32_t step, uint32_t rank, const StepTable& table) {
  if (database_ == nullptr) {
    if (absl::Status status = Begin(table); !status.ok()) return status;
  }
  auto plan = PlanOf(table);
  if (!plan.ok()) return plan.status();
  if (step_ != step) {
    first_ = options_.micro_steps ? (step_ ? first_ + width_ : 0) : step;
    width_ = 1;
    step_ = step;
  }
  width_ = std::max(width_, (*plan)->micro_steps);
  const size_t columns = kColumns.size() + (counts_ ? kCounts.size() : 0);
  for (const Place& place : (*plan)->places) {
    const Values values = ValuesOf(table, table.rows[place.row]);
    absl::Status status = database_->AddValues(rank, first_ + place.micro_step, place.target,
                                               static_cast<size_t>(place.metric), {values.data(), columns});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TrendExport::Finish() {
  if (database_ == nullptr || database_->rows() == 0) {
    return absl::InvalidArgumentError("there is no tensor of a floating dtype, so there is no trend");
  }
  return database_->Finish();
}

}  // namespace msprobe::server
