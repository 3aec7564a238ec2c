#include "agent/torch/device/device_signs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "agent/stats/signs.h"

namespace msprobe::capture {
namespace {

int64_t BytesOf(int64_t elements) { return static_cast<int64_t>(stats::SignBytes(static_cast<size_t>(elements))); }

// Bounds are compared as they are, as on the host, and what lacks comparisons (fp8) has them.
at::Tensor Comparable(const at::Tensor& piece) {
  return piece.scalar_type() == c10::kDouble ? piece : piece.to(c10::kFloat);
}

// visit(piece, first): parts of the elements in row-major order, each but the last of kSignPieceElements.
template <typename Visit>
void ForEachPiece(const at::Tensor& gradient, Visit&& visit) {
  const at::Tensor row = gradient.reshape({-1});
  for (int64_t first = 0; first < row.numel(); first += kSignPieceElements) {
    visit(Comparable(row.narrow(0, first, std::min(kSignPieceElements, row.numel() - first))), first);
  }
}

}  // namespace

at::Tensor SignsOnDevice(const at::Tensor& gradient) {
  const auto bytes = at::TensorOptions(c10::kByte).device(gradient.device());
  at::Tensor signs = at::zeros({BytesOf(gradient.numel())}, bytes);
  ForEachPiece(gradient, [&](const at::Tensor& piece, int64_t first) {
    const int64_t count = BytesOf(piece.numel());
    at::Tensor flags = at::zeros({count * 8}, bytes);
    flags.narrow(0, 0, piece.numel()).copy_(at::gt(piece, 0), true);
    const at::Tensor bits = flags.view({count, 8});
    at::Tensor of_piece = signs.narrow(0, first / 8, count);
    for (int64_t bit = 0; bit < 8; ++bit) of_piece.add_(bits.select(1, bit), int64_t{1} << bit);
  });
  return signs;
}

at::Tensor IntervalsOnDevice(const at::Tensor& gradient, std::span<const double> bounds) {
  const auto last = static_cast<int64_t>(bounds.size());
  at::Tensor counts = at::zeros({last + 2}, at::TensorOptions(c10::kLong).device(gradient.device()));
  ForEachPiece(gradient, [&](const at::Tensor& piece, int64_t) {
    // An element that is at or below a bound was counted into the interval that ends there, and leaves the next one.
    for (int64_t i = 0; i < last; ++i) {
      const at::Tensor within = at::sum(at::le(piece, bounds[static_cast<size_t>(i)]), c10::kLong);
      counts.select(0, i).add_(within);
      counts.select(0, i + 1).sub_(within);
    }
    counts.select(0, last).add_(piece.numel());
    counts.select(0, last + 1).add_(at::sum(at::eq(piece, 0), c10::kLong));
  });
  return counts;
}

}  // namespace msprobe::capture
