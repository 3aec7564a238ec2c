#pragma once

#include <deque>

#include "server/analysis/graph/merge_tree.h"
#include "server/analysis/graph/parallel_layout.h"

namespace msprobe::server::merge {

// The ranks that share tensors, group by group: those of the first reduction of each rank, if it names its process
// group and the group has the layout's size. Otherwise the layout says it.
RankGroups TensorGroups(const std::deque<Tree>& trees, const ParallelLayout& layout);

// The ranks of each pipeline, in the order in which they send to each other; otherwise the layout says it.
RankGroups PipelineGroups(const std::deque<Tree>& trees, const ParallelLayout& layout);

}  // namespace msprobe::server::merge
