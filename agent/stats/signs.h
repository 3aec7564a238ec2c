#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/stats/kernels.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// The signs of a tensor: one bit an element in row-major order, the least significant bit of each byte first. A bit is
// 1 if the element is above 0: zeros and NaN have 0, as mindstudio-probe's grad_probe has them. Threads: any.

// Bytes that hold the signs of so many elements. Bits past the last element are 0.
constexpr size_t SignBytes(size_t elements) { return (elements + 7) / 8; }

// From so many bytes on WriteSigns writes past the caches: a core's second level would not keep them until they are
// read, and a store into a cache first reads the line that it overwrites. ComputeStatistics does not: it is slower than
// memory anyway.
inline constexpr size_t kStreamedSigns = size_t{1} << 20;

// Whether the dtype has signs: floats of 8 to 64 bits, as gradients are.
bool HasSigns(DType dtype);

// Whether FloatKernels has the dtype: floats of 16 to 64 bits.
bool IsWideFloat(DType dtype);

// Writes SignBytes(view.element_count()) bytes. Nothing for a dtype without signs.
void WriteSigns(const TensorView& view, uint8_t* out);
void WriteSignsWith(const TensorView& view, const Kernels& kernels, uint8_t* out);

// How many elements lie in each interval (-inf, b0], (b0, b1], ..., (bn, inf), and after these how many are 0. `counts`
// has bounds.size() + 2 numbers. Bounds grow. An element is compared as a double; a NaN counts as above all bounds, as
// torch.bucketize has it. For a dtype with signs.
void CountIntervals(const TensorView& view, std::span<const double> bounds, std::span<int64_t> counts);

}  // namespace msprobe::stats
