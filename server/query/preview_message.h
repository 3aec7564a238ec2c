#pragma once

#include <cstdint>
#include <vector>

#include "msprobe/v1/analysis.pb.h"
#include "server/analysis/tensor/tensor_preview.h"

namespace msprobe::server {

// The index of an element in each dimension of a tensor.
std::vector<int64_t> IndexOf(uint64_t element, const std::vector<int64_t>& shape);

// InvalidArgument: more bins, or elements at an end, than are made.
absl::StatusOr<PreviewOptions> AskedPreview(uint32_t bins, uint32_t top);

// All but the dtype.
void FillPreview(const TensorPreview& preview, const std::vector<int64_t>& shape, v1::TensorPreview& out);

}  // namespace msprobe::server
