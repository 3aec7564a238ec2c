#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

enum class Blame : uint8_t {
  kWeight = 1,     // a parameter differs, all before agrees
  kInput,          // an input differs that no recorded operation made
  kArgument,       // an argument that is no tensor, a dtype or a shape differs
  kComputation,    // inputs and parameters agree, the output or gradient does not
  kCommunication,  // what this rank gave agrees, what a collective or a receive brought does not
  kMissing,        // one side has no such operation
  kUnreadable,     // content that should be there is missing or broken
};

// The first operation of one step of one rank that went another way.
struct Divergence {
  Blame blame = Blame::kComputation;
  // Indexes of entries; -1: that side has none.
  int32_t target_entry = -1;
  int32_t golden_entry = -1;
  std::vector<ComparedRow> rows;        // of the operation: those that differ, then those that agree
  std::vector<ContentResult> contents;  // ComparedRow.content
  std::string culprit;                  // name of the row that is blamed
  int32_t culprit_row = kNoRow;         // that row, if it is the target's: its edge tells who made it
  // The entries, by index into the target's, whose inputs differ and that led here, each to the producer of its
  // culprit: the first of all in order, then the producers. Empty: the first in order is the answer.
  std::vector<int32_t> path;
  uint64_t collectives_before = 0;  // communication records of the target before it
};

struct DivergenceOptions {
  CompareOptions comparison;
  bool ignore_missing = false;
  // A side that ended early, or of which records were left out: what only the other one has is no divergence.
  bool target_lacks_records = false;
  bool golden_lacks_records = false;
};

enum class Pairing : uint8_t {
  // Where the two sides called an operation a different number of times, its calls are paired by their context (module,
  // operation before, operation after), so that one call more does not shift the rest.
  kByContext,
  // Calls keep the numbers that their programs counted: records are missing, not calls.
  kByNumber,
};

// Pairs of entries in the target's order of execution; golden entries without a partner stand where they were executed.
// Entries are paired by their `names`.
std::vector<std::pair<int32_t, int32_t>> AlignEntries(const StepTable& target, const StepTable& golden,
                                                      const MappedNames& names, Pairing pairing);

// Nothing: the steps agree. Cancelled: options.comparison.content.cancelled returned true.
// Steps of two frameworks agree where everything with a partner does: they run other operations, which take other
// arguments. Where nothing has a partner, the first operation is missing.
absl::StatusOr<std::optional<Divergence>> FindFirstDivergence(const TableSource& target, const TableSource& golden,
                                                              const DivergenceOptions& options);

// Whether a record is a communication between ranks.
bool IsCommunication(std::string_view entry_name);

}  // namespace msprobe::server
