#pragma once

#include <cstddef>
#include <cstdint>

#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// Values of small floats, exactly, by their bits.
double DecodeFloat16(uint16_t bits);
double DecodeBFloat16(uint16_t bits);
double DecodeFloat8(DType dtype, uint8_t bits);  // the kFloat8 dtypes
double DecodeFloat4(uint8_t nibble);             // the low four bits

// Doubles that one element decodes to: 2 for kFloat4E2M1FNX2, else 1.
size_t ValuesPerElement(DType dtype);

// Widens `count` aligned elements to doubles: complex to absolute values, quantized to dequantised values, integers to
// their distance from `origin` (their own type's bits; exact where a double can be).
// `out` holds count * ValuesPerElement(dtype). Bool is not supported. Lazy bits are the caller's.
void DecodeToDouble(const TensorView& view, const void* elements, size_t count, int64_t origin, double* out);

}  // namespace msprobe::stats
