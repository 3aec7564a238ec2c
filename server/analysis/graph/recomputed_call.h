#pragma once

#include <cstdint>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Whether a call was made to compute again what activation checkpointing had not kept: torch made it, or Megatron with
// a function of its own. The call's stack says so, so nothing is known of calls without one, nor of other frameworks.
// stack: of table.stacks; -1: none.
bool IsRecomputed(const StepTable& table, int32_t stack);

}  // namespace msprobe::server
