#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "server/web/model_graph.h"

namespace msprobe::server {

// Which modules of a graph are open, by their nodes.

constexpr size_t kMaxOpen = 1000;  // at once

// Opens what is around a node, from it outward, so that at most kMaxOpen are open: of deeper nesting the outermost
// modules stay closed.
void OpenAround(const StepGraph& graph, int32_t node, std::set<int32_t>& open);

// What a graph begins with: the way to where the trouble began, else one level after the other as long as few boxes are
// shown.
std::set<int32_t> OpenAtFirst(const ModelGraph& model);

// Opens more modules, the worst and the outermost first, as long as at most `boxes` boxes are shown in all.
void OpenMore(const ModelGraph& model, size_t boxes, std::set<int32_t>& open);

}  // namespace msprobe::server
