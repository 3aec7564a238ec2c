#pragma once

#include <cstddef>

#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Reads `count` elements from memory as numbers. A complex element counts as two elements. 64-bit integers are rounded.
using ElementLoad = void (*)(const char* from, size_t count, const TensorDescription& description, double* to);

// Null: elements of this dtype cannot be read one by one (float4_e2m1fn_x2, unknown dtypes).
ElementLoad LoadOf(v1::DType dtype);

// Bytes of one element as ElementLoad counts: half of a complex element.
size_t LoadedSize(v1::DType dtype);

}  // namespace msprobe::server
