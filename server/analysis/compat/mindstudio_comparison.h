#pragma once

#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/analysis/compare/train_infer.h"
#include "server/analysis/compat/mindstudio_table.h"

namespace msprobe::server {

struct MindstudioComparison {
  std::string name_glob;  // shell pattern over full names of records; empty: all
  bool fuzzy = false;
  NameMapping mapping;  // not empty: wins over fuzzy
  // Not kNone: the target is a training step, the golden side an inference step. Wins over mapping and fuzzy.
  TrainingBackend training_backend = TrainingBackend::kNone;
  int threads = 2;
  std::function<bool()> cancelled;  // any thread; empty: never
};

// Compares one step as mindstudio-probe does, and writes its table as WriteMindstudioCsv does. Takes records and rows
// away from `steps`.
// InvalidArgument: mindstudio-probe has no table for such dumps, or for two that differ in kind.
absl::StatusOr<VerdictCounts> WriteMindstudioComparison(const MindstudioComparison& options, StepPair& steps,
                                                        absl::FunctionRef<absl::Status(std::string& chunk)> write);

}  // namespace msprobe::server
