#include "server/analysis/compat/mindstudio_comparison.h"

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "server/analysis/compare/content_comparison.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// Leaves only the wanted entries and their rows.
void Narrow(const std::function<bool(std::string_view name)>& wanted, StepTable& table) {
  std::erase_if(table.entries, [&](const Entry& entry) { return !wanted(entry.name); });
  std::vector<Row> rows;
  for (Entry& entry : table.entries) {
    const uint32_t first = entry.first_row;
    entry.first_row = static_cast<uint32_t>(rows.size());
    rows.insert(rows.end(), table.rows.begin() + first, table.rows.begin() + first + entry.rows);
  }
  for (Row& row : rows) row.ForgetEdge();
  table.rows = std::move(rows);
  table.layout = nullptr;
}

absl::Status CheckComparable(const StepTable& target, const StepTable& golden, TrainingBackend backend) {
  if (target.task == "structure" || golden.task == "structure") {
    return absl::InvalidArgumentError("dumps of task structure have no numbers to compare");
  }
  if (target.mode != golden.mode) {
    return absl::InvalidArgumentError(Cat("the target has ", ModeText(target.mode), " and the golden side ",
                                          ModeText(golden.mode),
                                          ": mindstudio-probe's table needs the same of both; compare without it"));
  }
  if (backend != TrainingBackend::kNone && target.mode == StepTable::Mode::kChecksum) {
    return absl::InvalidArgumentError(
        "these dumps have checksums (md5): training and inference are compared by statistics or tensors");
  }
  return absl::OkStatus();
}

RowMatch Match(const CompareOptions& options, TrainingBackend training_backend, StepPair& steps) {
  if (training_backend != TrainingBackend::kNone) {
    TrainInferSides sides = AlignTrainInfer(std::move(steps.target), std::move(steps.golden), training_backend);
    steps.target = std::move(sides.training);
    steps.golden = std::move(sides.inference);
    return std::move(sides.match);
  }
  const StepTable& target = steps.target->table();
  const StepTable& golden = steps.golden->table();
  return MatchRows(target, golden, options.mapping, options.fuzzy);
}

}  // namespace

std::string_view ModeText(StepTable::Mode mode) {
  return mode == StepTable::Mode::kTensor     ? "tensors"
         : mode == StepTable::Mode::kChecksum ? "checksums (md5)"
                                              : "statistics";
}

absl::StatusOr<VerdictCounts> WriteMindstudioComparison(const CompareOptions& options, TrainingBackend training_backend,
                                                        StepPair& steps,
                                                        absl::FunctionRef<absl::Status(std::string& chunk)> write) {
  const bool training = training_backend != TrainingBackend::kNone;
  absl::Status comparable = CheckComparable(steps.target->table(), steps.golden->table(), training_backend);
  if (!comparable.ok()) return comparable;
  if (options.wanted) {
    Narrow(options.wanted, steps.target->mutable_table());
    Narrow(options.wanted, steps.golden->mutable_table());
  }
  MindstudioTable table;
  table.mode = steps.target->table().mode;
  const RowMatch match = Match(options, training_backend, steps);
  table.target = &steps.target->table();
  table.golden = &steps.golden->table();
  table.match = &match;
  table.threads = options.content.threads;
  table.check_dtypes = !options.mapping.names_partners() && !training;
  table.training_backend = training_backend;
  table.across_frameworks = AcrossFrameworks(*table.target, *table.golden);
  std::vector<ContentResult> contents;
  if (table.mode == StepTable::Mode::kTensor) {
    auto compared = CompareContents(match, *steps.target, *steps.golden, options.content);
    if (!compared.ok()) return compared.status();
    contents = *std::move(compared);
    table.contents = &contents;
  }
  return WriteMindstudioCsv(table, write);
}

}  // namespace msprobe::server
