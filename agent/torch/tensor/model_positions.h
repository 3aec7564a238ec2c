#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "agent/capture/steps/served_batch.h"

namespace msprobe::capture {

// The place of a forward pass's positions in memory. Absent if `positions` has no dimension. Runs no operator of torch.
std::optional<Positions> PositionsOf(const at::Tensor& positions);

}  // namespace msprobe::capture
