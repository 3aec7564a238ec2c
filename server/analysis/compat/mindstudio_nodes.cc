#include "server/analysis/compat/mindstudio_nodes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/compat/mindstudio_comparison.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kComparedStates = 5;

// Rows of an entry by their states; rows of one state stand together.
std::array<std::pair<uint32_t, uint32_t>, kComparedStates> Ranges(const StepTable& table, const Entry& entry) {
  std::array<std::pair<uint32_t, uint32_t>, kComparedStates> ranges{};
  for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
    auto& [first, count] = ranges[static_cast<size_t>(table.rows[i].state)];
    if (count++ == 0) first = i;
  }
  return ranges;
}

std::string_view ParameterOf(std::string_view row) {
  const std::string_view name = row.substr(row.rfind('.') + 1);
  const std::string_view known = PyTorchParameter(name);
  return known.empty() ? name : known;
}

// The row of the same parameter among these. Two frameworks have them in another order.
int32_t OfParameter(std::string_view name, const StepTable& golden, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) {
    if (ParameterOf(golden.rows[i].name) == ParameterOf(name)) return static_cast<int32_t>(i);
  }
  return kNoRow;
}

// Numbers, NaN and the infinities as numbers; all else has no difference.
Difference DifferenceOf(const Cell& target, const Cell& golden) {
  Difference found;
  found.spelling = Difference::Spelling::kWord;
  found.word = kNotAvailable;
  if (!target.is_number() || !golden.is_number()) return found;
  const double difference = target.is_whole() && golden.is_whole()
                                ? static_cast<double>(target.whole() - golden.whole())
                                : target.number() - golden.number();
  if (std::isnan(difference)) {
    found.word = "Nan";
    return found;
  }
  found.spelling = Difference::Spelling::kNumber;
  found.difference = difference;
  found.by_zero = golden.number() == 0;
  if (!found.by_zero) found.percent = std::fabs(difference / golden.number() * 100);
  return found;
}

}  // namespace

absl::StatusOr<MindstudioNodes> MindstudioNodes::Make(const TableSource& target_source,
                                                      const TableSource& golden_source, const Entries& entries,
                                                      const ContentComparison& options) {
  const StepTable& target = target_source.table();
  const StepTable& golden = golden_source.table();
  MindstudioNodes made;
  made.table_.target = &target;
  made.table_.golden = &golden;
  made.table_.mode = target.mode;
  made.table_.by_place = true;
  made.table_.across_frameworks = AcrossFrameworks(target, golden);
  made.structure_ = target.task == "structure" || golden.task == "structure";
  made.first_.reserve(entries.size() + 1);
  made.first_.push_back(0);
  if (made.structure_) {
    made.first_.resize(entries.size() + 1);
    return made;
  }
  if (target.mode != golden.mode) {
    return absl::InvalidArgumentError(Cat("the target has ", ModeText(target.mode), " and the golden side ",
                                          ModeText(golden.mode),
                                          ": a graph needs the same of both; capture them with the same task"));
  }
  for (const auto& [target_entry, golden_entry] : entries) {
    if (target_entry >= 0 && golden_entry >= 0) {
      const auto ours = Ranges(target, target.entries[static_cast<size_t>(target_entry)]);
      const auto theirs = Ranges(golden, golden.entries[static_cast<size_t>(golden_entry)]);
      for (const RowState state :
           {RowState::kInput, RowState::kParameters, RowState::kOutput, RowState::kParametersGrad}) {
        const auto [first, count] = ours[static_cast<size_t>(state)];
        const auto [golden_first, golden_count] = theirs[static_cast<size_t>(state)];
        const bool by_name =
            made.table_.across_frameworks && (state == RowState::kParameters || state == RowState::kParametersGrad);
        for (uint32_t k = 0; k < count; ++k) {
          const int32_t at_place = k < golden_count ? static_cast<int32_t>(golden_first + k) : kNoRow;
          made.match_.pairs.emplace_back(
              static_cast<int32_t>(first + k),
              by_name ? OfParameter(target.rows[first + k].name, golden, golden_first, golden_count) : at_place);
        }
      }
    }
    made.first_.push_back(static_cast<uint32_t>(made.match_.pairs.size()));
  }
  if (target.mode == StepTable::Mode::kTensor) {
    auto contents = CompareContents(made.match_, target_source, golden_source, options);
    if (!contents.ok()) return contents.status();
    made.contents_ = *std::move(contents);
  }
  return made;
}

Severity MindstudioNodes::Judge(size_t pair, std::vector<TableRow>& group) const {
  const MindstudioRows rows(*table_.target, *table_.golden);
  group.clear();
  for (uint32_t i = first_[pair]; i < first_[pair + 1]; ++i) {
    TableRow& row = group.emplace_back();
    row.target = match_.pairs[i].first;
    row.golden = match_.pairs[i].second;
    const Row* const partner = rows.GoldenRow(row);
    if (table_.mode == StepTable::Mode::kTensor) {
      row.content = &contents_[i];
      FillFigures(rows, row);
    } else if (table_.mode == StepTable::Mode::kStatistics && partner != nullptr) {
      for (size_t k = 0; k < row.differences.size(); ++k) {
        row.differences[k] = DifferenceOf(rows.TargetRow(row).statistics[k], partner->statistics[k]);
      }
    }
  }
  Severity worst = Severity::kPass;
  if (group.empty()) return worst;
  JudgeMindstudio(table_, group);
  for (const TableRow& row : group) worst = std::max(worst, row.severity);
  return worst;
}

}  // namespace msprobe::server
