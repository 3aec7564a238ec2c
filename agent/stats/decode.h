#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// The exact values of small floats, given their bits.
double DecodeFloat16(uint16_t bits);
double DecodeBFloat16(uint16_t bits);
double DecodeFloat8(DType dtype, uint8_t bits);  // the kFloat8 dtypes
double DecodeFloat4(uint8_t nibble);             // the low four bits

// The number of values in one element: 2 for kFloat4E2M1FNX2, else 1.
size_t ValuesPerElement(DType dtype);

// Widens `count` aligned elements to doubles: complex elements to absolute values, quantized ones to dequantised
// values, and integers to their distance from `origin` (which has the bits of their own type), exact if a double can
// be. `out` has room for count * ValuesPerElement(dtype). Bool is not supported. The caller handles lazy conj and neg
// bits.
void DecodeToDouble(const TensorView& view, const void* elements, size_t count, int64_t origin, double* out);

}  // namespace msprobe::stats
