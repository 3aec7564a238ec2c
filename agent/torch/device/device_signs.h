#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace msprobe::capture {

// Signs and intervals of a device's tensor of floats (stats::WriteSigns, stats::CountIntervals), made where it lies, on
// the current stream: an eighth of a byte an element goes over the bus. While it works, it takes 6 bytes an element, of
// at most kSignPieceElements, from the backend's allocator, and a copy of a gradient that has gaps.
//
// Any thread, under QuietDispatch. Throws what libtorch throws, such as for an operator that a backend lacks.

inline constexpr int64_t kSignPieceElements = int64_t{1} << 22;

// A tensor of uint8.
at::Tensor SignsOnDevice(const at::Tensor& gradient);
// A tensor of int64, with bounds.size() + 2 numbers.
at::Tensor IntervalsOnDevice(const at::Tensor& gradient, std::span<const double> bounds);

}  // namespace msprobe::capture
