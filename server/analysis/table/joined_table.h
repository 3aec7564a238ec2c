#pragma once

#include <memory>
#include <vector>

#include "server/analysis/compare/comparison.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// One step of two sides that ran on different numbers of ranks. The ranks of each side are joined, as if one rank had
// run the step. Rows with the same full name are joined by these rules:
//   1. Shapes that differ along one axis, and add up to the same size there on both sides, are shards. They are joined
//      along that axis in order of rank: Max, Min, Mean, Norm and counts are combined, contents concatenated. Where one
//      side adds up to a multiple of the other, its ranks are that many groups of replicas, one after the other, and
//      the first group is taken.
//   2. Rows with the same shape everywhere are replicas if a side's ranks agree within the tolerances; the first is
//      taken. If they do not agree, they are partial sums or other values, and the row has nothing to compare.
//   3. Integers that are no tensors, in the inverse ratio of the numbers of ranks, are sizes of shards. They are taken
//      as equal.
//   4. All other rows stay as the first rank has them.
// Records that the first rank lacks stand behind its own, rank by rank.
// StepTable.layouts tells which rule was used. Elements of joined contents are in memory while they are read.
struct JoinedSides {
  std::unique_ptr<TableSource> target;
  std::unique_ptr<TableSource> golden;
};
JoinedSides JoinLayouts(std::vector<std::unique_ptr<TableSource>> target,
                        std::vector<std::unique_ptr<TableSource>> golden, const CompareOptions& options);

}  // namespace msprobe::server
