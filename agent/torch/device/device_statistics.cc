#include "agent/torch/device/device_statistics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "agent/torch/tensor/tensor_reader.h"

namespace msprobe::capture {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();
constexpr int64_t kExponent = 0x7f800000;  // the bits of a float's exponent
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor Floats(c10::Device device, c10::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions(c10::kFloat).device(device));
}

// The field of a row at `offset` bytes.
at::Tensor FieldOf(const at::Tensor& row, c10::ScalarType type, size_t offset, c10::IntArrayRef sizes = {}) {
  const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  return row.narrow(0, static_cast<int64_t>(offset), bytes).view(type).view(sizes);
}

}  // namespace

bool ReducesOnDevice(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
    case c10::kHalf:
    case c10::kBFloat16:
    case c10::kBool:
    case c10::kByte:
    case c10::kChar:
    case c10::kShort:
    case c10::kInt:
    case c10::kLong:
      return true;
    default:
      return false;
  }
}

DeviceStatistics::DeviceStatistics(c10::Device device)
    : values_(Floats(device, {kPieceElements})),
      masked_(Floats(device, {kPieceElements})),
      flags_(Floats(device, {4, kPieceElements})) {}

void DeviceStatistics::Launch(const at::Tensor& piece, const at::Tensor& row) {
  const int64_t count = piece.numel();
  const DeviceRowKind kind = RowKindOf(static_cast<stats::DType>(WireDType(piece.scalar_type())));
  at::Tensor values = values_.narrow(0, 0, count);
  values.view(piece.sizes()).copy_(piece, true);

  const auto flag = [&](int64_t number) { return flags_.select(0, number).narrow(0, 0, count); };
  at::Tensor zeros = flag(3);
  at::eq_out(zeros, values, 0);
  if (kind == DeviceRowKind::kFloating) {
    at::Tensor nans = flag(0), ups = flag(1), downs = flag(2), masked = masked_.narrow(0, 0, count);
    at::ne_out(nans, values, values);
    at::eq_out(ups, values, kInfinity);
    at::eq_out(downs, values, -kInfinity);
    at::Tensor counts = FieldOf(row, c10::kFloat, offsetof(DeviceRow, nan_count), {4});
    at::sum_out(counts, flags_.narrow(1, 0, count), {1}, false, c10::kFloat);

    at::Tensor max = FieldOf(row, c10::kFloat, offsetof(DeviceRow, max));
    at::Tensor min = FieldOf(row, c10::kFloat, offsetof(DeviceRow, min));
    at::nan_to_num_out(masked, values, -kLargest, -kLargest, -kLargest);
    at::amax_out(max, masked, {0});
    at::nan_to_num_out(masked, values, kLargest, kLargest, kLargest);
    at::amin_out(min, masked, {0});
    at::nan_to_num_out(masked, values, 0, 0, 0);
    values = masked;
  } else {
    FieldOf(row, c10::kFloat, offsetof(DeviceRow, nan_count), {3}).zero_();
    at::Tensor zero_count = FieldOf(row, c10::kFloat, offsetof(DeviceRow, zero_count));
    at::sum_out(zero_count, zeros, {0}, false, c10::kFloat);
    const bool wide = kind == DeviceRowKind::kWideInteger;
    const c10::ScalarType type = wide ? piece.scalar_type() : c10::kFloat;
    std::vector<int64_t> dims;
    for (int64_t dim = 0; dim < (wide ? piece.dim() : 1); ++dim) dims.push_back(dim);
    at::Tensor max = FieldOf(row, type, wide ? offsetof(DeviceRow, integer_max) : offsetof(DeviceRow, max));
    at::Tensor min = FieldOf(row, type, wide ? offsetof(DeviceRow, integer_min) : offsetof(DeviceRow, min));
    at::amax_out(max, wide ? piece : values, dims);
    at::amin_out(min, wide ? piece : values, dims);
  }

  at::Tensor scale = FieldOf(row, c10::kFloat, offsetof(DeviceRow, scale));
  at::Tensor sum = FieldOf(row, c10::kFloat, offsetof(DeviceRow, sum));
  at::Tensor variance = FieldOf(row, c10::kFloat, offsetof(DeviceRow, variance));
  at::linalg_vector_norm_out(scale, values, kInfinity);
  at::clamp_min_out(scale, scale, kSmallestNormal);
  // Down to a power of two, by which dividing rounds nothing away.
  at::Tensor bits = FieldOf(row, c10::kInt, offsetof(DeviceRow, scale));
  at::bitwise_and_out(bits, bits, kExponent);
  at::div_out(values, values, scale);
  at::sum_out(sum, values, {0}, false, c10::kFloat);
  FieldOf(row, c10::kFloat, offsetof(DeviceRow, sum_rest)).zero_();
  at::var_out(variance, values, at::OptionalIntArrayRef({0}), c10::Scalar(0), false);
}

void DeviceStatistics::ForEachPiece(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& visit) {
  const int64_t count = tensor.numel();
  if (count <= kPieceElements) return visit(tensor);
  if (tensor.is_non_overlapping_and_dense()) {
    const at::Tensor flat = tensor.as_strided({count}, {1}, tensor.storage_offset());
    for (int64_t begin = 0; begin < count; begin += kPieceElements) {
      visit(flat.narrow(0, begin, std::min(kPieceElements, count - begin)));
    }
    return;
  }
  const int64_t size = tensor.size(0);
  const int64_t together = std::max<int64_t>(1, kPieceElements / (count / size));
  for (int64_t begin = 0; begin < size; begin += together) {
    const at::Tensor part = tensor.narrow(0, begin, std::min(together, size - begin));
    ForEachPiece(together == 1 ? part.select(0, 0) : part, visit);
  }
}

}  // namespace msprobe::capture
