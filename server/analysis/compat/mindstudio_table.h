#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/analysis/compare/elementwise.h"
#include "server/analysis/compare/row_match.h"
#include "server/analysis/compare/train_infer.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// The outcome of comparing the contents of one pair of rows.
struct ContentResult {
  enum class Kind : uint8_t {
    kNoFile,       // a side has no file
    kUnreadable,   // a file is missing, truncated or no tensor; `message` says which
    kShapes,       // the shapes differ
    kUnsupported,  // the dtypes cannot be compared element by element; `message` says why
    kCompared,
  };
  Kind kind = Kind::kNoFile;
  ElementwiseMetrics metrics;
  std::string message;
  // Without dimensions of size 1, as mindstudio-probe looks at tensors.
  bool squeezed_shapes_equal = true;
  bool squeezed_scalar = false;
  bool empty = false;
  // The elements of a tensor of one element.
  double scalar_target = 0;
  double scalar_golden = 0;
};

// mindstudio-probe's table of one step of one rank: its columns, its order, its spelling, its verdicts.
// Rows whose dtypes do not match lose their partner, as there. `contents` stand beside match.pairs in mode tensor.
struct MindstudioTable {
  const StepTable* target = nullptr;
  const StepTable* golden = nullptr;
  const RowMatch* match = nullptr;
  const std::vector<ContentResult>* contents = nullptr;
  StepTable::Mode mode = StepTable::Mode::kStatistics;
  bool check_dtypes = true;        // false with a data mapping
  bool across_frameworks = false;  // MindSpore's against PyTorch's
  // Of tables made by AlignTrainInfer.
  TrainingBackend training_backend = TrainingBackend::kNone;
  // Rows are paired by their places, as in graphs: a target row without partner differs from what should be there.
  bool by_place = false;
  int threads = 1;  // that write parts of it
};

struct VerdictCounts {
  uint64_t rows = 0;
  uint64_t warnings = 0;
  uint64_t errors = 0;
  uint64_t target_only = 0;
};

// The csv, header first, in chunks of about 1 MiB, which `write` may take away. Stops at the first status that is not
// OK.
absl::StatusOr<VerdictCounts> WriteMindstudioCsv(const MindstudioTable& table,
                                                 absl::FunctionRef<absl::Status(std::string& chunk)> write);

}  // namespace msprobe::server
