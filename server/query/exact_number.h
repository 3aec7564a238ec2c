#pragma once

#include <optional>

#include "msprobe/v1/record.pb.h"
#include "server/analysis/table/cell.h"

namespace msprobe::server {

// An integer on the wire, where a double beside it may round it. Nothing: the cell holds no integer.
std::optional<v1::TensorLeaf::Number> ExactNumber(const Cell& cell);

}  // namespace msprobe::server
