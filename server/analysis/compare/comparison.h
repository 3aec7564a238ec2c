#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/compare/content_comparison.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/compare/row_match.h"
#include "server/analysis/compare/tolerance.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// The outcome of comparing one row, by the rules of docs/analysis.md. From best to worst.
enum class Verdict : uint8_t {
  kEqual,       // the same bits, or the same statistics where nothing better is known
  kWithin,      // different, within the tolerance
  kUnknown,     // neither side has anything to compare
  kTargetOnly,  // no partner
  kGoldenOnly,
  kDiffers,    // beyond the tolerance
  kNonFinite,  // NaN or infinity on one side only, or infinities of different sign
  kScalar,     // an argument that is no tensor has another value
  kShape,
  kDType,       // types that cannot be compared
  kUnreadable,  // content that should be there is missing or broken
};
constexpr size_t kVerdicts = 11;

std::string_view VerdictName(Verdict verdict);
// Whether a row with this verdict makes two runs different.
bool IsDifference(Verdict verdict);

// The numbers that a verdict rests on.
enum class Basis : uint8_t { kNothing, kStatistics, kChecksum, kContent };

struct ComparedRow {
  int32_t target = kNoRow;
  int32_t golden = kNoRow;
  int32_t content = -1;  // StepComparison.contents
  Verdict verdict = Verdict::kUnknown;
  Basis basis = Basis::kNothing;
  // The worst difference in multiples of the tolerance; infinite where there is no number for it.
  double excess = 0;
  // Basis kStatistics: the statistic of `excess` ("Max", "Min", "Mean", "Norm") and its values.
  std::string_view statistic;
  Cell target_value = Cell::Real(0);
  Cell golden_value = Cell::Real(0);
};

struct VerdictTally {
  uint64_t rows = 0;
  uint64_t by_verdict[kVerdicts] = {};
  double worst_excess = 0;
  std::string worst;             // the row of it
  std::string first_difference;  // in order of execution

  void Add(Verdict verdict, double excess, std::string_view name);
  // Adds what comes later in order of execution.
  void Add(const VerdictTally& later);
  bool differs() const;
};

struct StepComparison {
  RowMatch match;
  std::vector<ComparedRow> rows;  // of the target in its order, then golden rows that nothing took
  std::vector<ContentResult> contents;
  VerdictTally total;
  std::map<std::string, VerdictTally> modules;  // "model.layers.0.mlp", records outside of modules under ""
  std::map<std::string, VerdictTally> layers;   // "model.layers.0"
};

// Sorts indexes of StepComparison.rows: the worst verdict first, and of one verdict the largest excess. Others keep
// their order.
void SortBySignificance(const std::vector<ComparedRow>& rows, std::vector<size_t>& order);

enum class CompareMode : uint8_t { kBest, kStatistics, kChecksum, kContent };

// How two sides are compared; v1::CompareOptions on the wire.
struct CompareOptions {
  CompareMode mode = CompareMode::kBest;
  bool fuzzy = false;   // by name without the call's number
  NameMapping mapping;  // not empty: wins over fuzzy
  Tolerances tolerances;
  bool across_layouts = false;  // the sides have different numbers of ranks: all ranks of a step are compared together
  // Takes full names of records; only these are compared. Empty: all.
  std::function<bool(std::string_view name)> wanted;
  ContentComparison content;
};

// Compares one step of one rank with another. Cancelled: options.content.cancelled returned true.
absl::StatusOr<StepComparison> CompareStep(const TableSource& target, const TableSource& golden,
                                           const CompareOptions& options);

// Judges one pair of rows; kNoRow where a side has none. `content` may be null. Of `options`, mode and tolerances
// count.
ComparedRow JudgeRow(const StepTable& target, const StepTable& golden, const CompareOptions& options,
                     int32_t target_row, int32_t golden_row, const ContentResult* content);

// Whether two steps of one layout surely have no difference by their statistics and checksums. False: perhaps they
// have.
bool SurelyAgree(const StepTable& target, const StepTable& golden, const CompareOptions& options);

}  // namespace msprobe::server
