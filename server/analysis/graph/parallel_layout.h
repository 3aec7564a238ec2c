#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::server {

// How the ranks of a run share one model, in Megatron's words.
struct ParallelLayout {
  uint32_t ranks = 1;                    // all of them
  uint32_t tensor = 1;                   // ranks that share each tensor
  uint32_t pipeline = 1;                 // ranks that have the model's layers one after another
  std::string order = "tp-cp-ep-dp-pp";  // which ranks are next to each other: first of one tp, ...
  uint32_t chunks = 1;                   // of layers, that each rank of a pipeline has: a virtual pipeline
};

// InvalidArgument: the numbers do not fit each other, or the order lacks a part; says which.
absl::Status CheckLayout(const ParallelLayout& layout);

using RankGroups = std::vector<std::vector<uint32_t>>;

// The ranks that share tensors ("tp") or layers ("pp"), group by group. The layout is one that CheckLayout takes.
RankGroups GroupsOf(const ParallelLayout& layout, std::string_view part);

}  // namespace msprobe::server
