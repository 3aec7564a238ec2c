#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/compare/content_comparison.h"
#include "server/analysis/compat/mindstudio_rows.h"
#include "server/analysis/compat/mindstudio_table.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// mindstudio-probe's comparison of graphs: the rows of two entries are compared by their places (inputs, parameters,
// results, gradients), and judged by the rules of its tables.
//
// Borrows both tables. Constant once made; threads: any.
class MindstudioNodes {
 public:
  using Entries = std::vector<std::pair<int32_t, int32_t>>;  // StepTable.entries of both; -1: a node has none

  // Compares the contents of tensors, where there are any.
  // InvalidArgument: the two sides do not have the same kind of values. Cancelled: options.cancelled returned true.
  static absl::StatusOr<MindstudioNodes> Make(const TableSource& target, const TableSource& golden,
                                              const Entries& entries, const ContentComparison& options);

  // Of dumps of task structure there are no values, and Judge gives no rows.
  bool structure() const { return structure_; }
  StepTable::Mode mode() const { return table_.mode; }
  // The rows of one pair of entries, as many as the target's entry has. Gives the worst verdict of any.
  Severity Judge(size_t pair, std::vector<TableRow>& rows) const;

 private:
  MindstudioTable table_;
  bool structure_ = false;
  RowMatch match_;
  std::vector<uint32_t> first_;  // by pair of entries: of match_.pairs; one more at the end
  std::vector<ContentResult> contents_;
};

}  // namespace msprobe::server
