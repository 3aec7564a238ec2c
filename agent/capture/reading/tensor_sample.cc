#include "agent/capture/reading/tensor_sample.h"

#include <algorithm>

#include "agent/stats/decode.h"

namespace msprobe::capture {

std::vector<double> SampleDense(const stats::TensorView& view, size_t most) {
  constexpr size_t kPiece = 64;  // elements that lie together
  const size_t size = stats::ElementSize(view.dtype);
  const auto count = static_cast<size_t>(view.element_count());
  if (count == 0 || view.data == nullptr || size == 0 || stats::ValuesPerElement(view.dtype) != 1) return {};
  const char* const first = static_cast<const char*>(view.data);
  const size_t pieces = count <= most ? 1 : std::max<size_t>(1, most / kPiece);
  const size_t piece = count <= most ? count : kPiece;
  std::vector<double> values(pieces * piece);
  for (size_t i = 0; i < pieces; ++i) {
    const size_t at = pieces == 1 ? 0 : i * (count - piece) / (pieces - 1);
    stats::DecodeToDouble(view, first + at * size, piece, 0, values.data() + i * piece);
  }
  return values;
}

}  // namespace msprobe::capture
