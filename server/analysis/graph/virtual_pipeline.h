#pragma once

#include <cstdint>

#include "server/analysis/graph/merge_tree.h"

namespace msprobe::server::merge {

// Joins the chunks of a virtual pipeline, whose ranks are merged: "Module.1.decoder" goes on where "Module.0.decoder"
// ends. Its layers follow in there and are numbered through (of backward calls: before them, from the end); what else
// only a later chunk has, such as the output layer, comes along. A module around layers ends with the last chunk's
// results. A module without layers that chunk 0 has, too, stands once.
void JoinChunks(Tree& main, uint32_t chunks);

}  // namespace msprobe::server::merge
