#pragma once

#include <cstdint>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The value of one element of a floating type with at most 16 bits. For float4_e2m1fn_x2, `bits` is one half, 0 to 15.
float WidenToFloat(v1::DType dtype, uint16_t bits);

}  // namespace msprobe::server
