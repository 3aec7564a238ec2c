#pragma once

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/analysis/compare/train_infer.h"
#include "server/analysis/compat/mindstudio_table.h"

namespace msprobe::server {

// "statistics", "tensors": what a step has to compare.
std::string_view ModeText(StepTable::Mode mode);

// Compares one step as mindstudio-probe does, and writes its table as WriteMindstudioCsv does. Takes records and rows
// away from `steps`.
// `training_backend`, not kNone: the target is a training step, the golden side an inference step, whatever mapping and
// fuzzy say. Mode and tolerances of the options are not looked at.
// InvalidArgument: mindstudio-probe has no table for such dumps, or for two that differ in kind.
absl::StatusOr<VerdictCounts> WriteMindstudioComparison(const CompareOptions& options, TrainingBackend training_backend,
                                                        StepPair& steps,
                                                        absl::FunctionRef<absl::Status(std::string& chunk)> write);

}  // namespace msprobe::server
