#include "agent/torch/device/device_pieces.h"

#include <cstring>
#include <vector>

#include "agent/torch/device/device_row.h"

namespace msprobe::capture {

static_assert(sizeof(DeviceRow) <= kRowStride);

stats::Statistics CombineRows(const std::byte* rows, std::span<const int64_t> piece_elements, stats::DType dtype,
                              int64_t repeats) {
  std::vector<DevicePiece> pieces(piece_elements.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].elements = piece_elements[i];
    DeviceRow& row = pieces[i].row;
    std::memcpy(&row, rows + i * kRowStride, sizeof(row));
    if (dtype != stats::DType::kInt32) continue;
    // The device wrote 32 bits.
    row.integer_max = static_cast<int32_t>(row.integer_max);
    row.integer_min = static_cast<int32_t>(row.integer_min);
  }
  return CombinePieces(pieces, RowKindOf(dtype), dtype == stats::DType::kBool, repeats);
}

}  // namespace msprobe::capture
