#pragma once

#include <cstdint>
#include <vector>

#include "server/analysis/graph/step_graph.h"

namespace msprobe::server {

// Which nodes of two graphs belong together; -1: a node has no partner.
struct GraphMatch {
  std::vector<int32_t> golden_of;  // by node of the target
  std::vector<int32_t> target_of;  // by node of the golden graph
};

// By name, with modules of the same names around both.
GraphMatch MatchNodes(const StepGraph& target, const StepGraph& golden);

// Modules by name, wherever they lie. API calls directly inside of two matched modules by their names without the
// call's number, in order of execution; a rank in the name, where ranks were merged, does not count.
GraphMatch MatchNodesFuzzily(const StepGraph& target, const StepGraph& golden);

// By the places of their modules: `golden_entry_of` has the golden entry of each of the target's entries (-1: none).
// Nodes without an entry match by name. Where several have the same partner, the partner names the last one.
GraphMatch MatchNodesByEntries(const StepGraph& target, const StepGraph& golden,
                               const std::vector<int32_t>& golden_entry_of);

// Gives matched nodes below the root of the golden graph the target's micro step, so that a page shows both.
void AlignMicroSteps(const StepGraph& target, const GraphMatch& match, StepGraph& golden);

}  // namespace msprobe::server
