#pragma once

#include <memory>
#include <vector>

#include "server/analysis/compare/comparison.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// One step of all ranks of two sides that are laid out over different numbers of ranks, each side as if one rank had
// run it. By full name of row:
//   1. shapes that differ along one axis, and add up to the same size there on both sides: shards, joined along it in
//      order of rank (Max, Min, Mean, Norm and counts combined; contents joined). Where one side adds up to a multiple,
//      its ranks are that many groups of replicas, one after the other, and the first group is taken;
//   2. the same shape everywhere: replicas, where a side's ranks agree within the tolerances; the first one is taken.
//      Where they do not agree they are partial sums or other data, and the row has nothing to compare;
//   3. integers that are no tensors and stand in the inverse ratio of the numbers of ranks: sizes of shards, taken as
//      equal;
//   4. anything else stays as the first rank has it.
// Records that the first rank lacks stand behind its own, rank by rank.
// StepTable.layouts says what was done. Elements of joined contents are in memory while they are read.
struct JoinedSides {
  std::unique_ptr<TableSource> target;
  std::unique_ptr<TableSource> golden;
};
JoinedSides JoinLayouts(std::vector<std::unique_ptr<TableSource>> target,
                        std::vector<std::unique_ptr<TableSource>> golden, const CompareOptions& options);

}  // namespace msprobe::server
