#include "agent/torch/tensor/model_positions.h"

namespace msprobe::capture {

std::optional<Positions> PositionsOf(const at::Tensor& positions) {
  if (positions.dim() < 1) return std::nullopt;
  Positions found{.size = positions.sizes().back()};
  if (positions.layout() != at::kStrided) return found;
  const c10::TensorImpl& tensor = *positions.unsafeGetTensorImpl();
  const int64_t stride = positions.strides().back();
  if (tensor.has_storage() && stride == 1) {
    found.place = {.begin = tensor.storage_offset(),
                   .capacity = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize())};
  }
  const bool is_wide = positions.scalar_type() == at::kLong;
  if (positions.device().is_cpu() && (is_wide || positions.scalar_type() == at::kInt)) {
    found.host = tensor.data();
    found.stride = stride;
    found.is_wide = is_wide;
  }
  return found;
}

}  // namespace msprobe::capture
