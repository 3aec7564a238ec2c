#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/graph/merge_tree.h"

namespace msprobe::server::merge {

// Rank -> the other ranks that share its tensors.
using Partners = absl::flat_hash_map<uint32_t, std::vector<uint32_t>>;

// Merges ranks that share tensors into the first of them, which it gives. `partners`: of the ranks that stand in names,
// where pipelines were merged before; otherwise empty.
Tree* MergeTensors(const Trees& group, const Partners& partners);

}  // namespace msprobe::server::merge
