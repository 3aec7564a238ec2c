#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/compare/row_match.h"
#include "server/analysis/compare/tolerance.h"
#include "server/analysis/compat/mindstudio_table.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

struct ContentComparison {
  int threads = 2;
  const Tolerances* tolerances = nullptr;     // null: none
  std::function<bool()> cancelled;            // any thread; empty: never
  std::function<void(size_t done)> progress;  // any thread; empty: nobody listens
};

// Compares the contents of every pair of rows, element by element, on `threads` threads. Gives one result a pair; a
// content that cannot be read is a result, not an error. Cancelled: `cancelled` returned true.
absl::StatusOr<std::vector<ContentResult>> CompareContents(const RowMatch& match, const TableSource& target,
                                                           const TableSource& golden, const ContentComparison& options);

// One pair of rows that both have a data_name.
ContentResult CompareContent(const Row& target_row, const TableSource& target, const Row& golden_row,
                             const TableSource& golden, const Tolerances* tolerances);

}  // namespace msprobe::server
