#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

size_t ElementSize(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU:
    case DType::kFloat4E2M1FNX2:
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
    case DType::kQInt8:
    case DType::kQUInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kComplex32:
    case DType::kQInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
    case DType::kUnspecified:
    case DType::kOther:
      return 0;
  }
  return 0;
}

int64_t TensorView::element_count() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

bool TensorView::is_contiguous() const {
  if (element_count() == 0) return true;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

}  // namespace msprobe::stats
