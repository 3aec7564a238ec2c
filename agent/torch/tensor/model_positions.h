#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "agent/capture/served_batch.h"

namespace msprobe::capture {

// Where the positions of a forward pass lie. Nothing: `positions` has no dimension. Runs no operator of torch.
std::optional<Positions> PositionsOf(const at::Tensor& positions);

}  // namespace msprobe::capture
