#pragma once

#include "server/analysis/graph/merge_tree.h"

namespace msprobe::server::merge {

// Merges the ranks of a pipeline, which come in its order, into the first of them, which it gives.
Tree* MergePipeline(const Trees& group);

}  // namespace msprobe::server::merge
