#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// "torch.float32"; empty for DTYPE_UNSPECIFIED and DTYPE_OTHER.
std::string_view TorchDTypeName(v1::DType dtype);

// The element type for a name in the style of any framework: "torch.float32" (torch), "float32" (numpy), "Float32"
// (MindSpore). DTYPE_OTHER: no type has this name.
v1::DType DTypeOfName(std::string_view name);

// Bytes of one element; 0 for DTYPE_UNSPECIFIED and DTYPE_OTHER.
size_t DTypeSize(v1::DType dtype);

bool IsQuantized(v1::DType dtype);
bool IsComplex(v1::DType dtype);
bool IsFloat8(v1::DType dtype);
// True for integer types and bool, false for quantized types.
bool IsInteger(v1::DType dtype);

}  // namespace msprobe::server
