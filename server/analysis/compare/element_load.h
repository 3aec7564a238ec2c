#pragma once

#include <cstddef>

#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Turns `count` elements as they lie in memory into numbers. Complex elements are two. 64-bit integers are rounded.
using ElementLoad = void (*)(const char* from, size_t count, const TensorDescription& description, double* to);

// Null: a dtype whose elements cannot be read one by one (float4_e2m1fn_x2, unknown ones).
ElementLoad LoadOf(v1::DType dtype);

// Bytes of what LoadOf counts as one element: half a complex one.
size_t LoadedSize(v1::DType dtype);

}  // namespace msprobe::server
