#pragma once

#include <string_view>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The dtype of a code in a safetensors header: "BF16". DTYPE_UNSPECIFIED: none of ours.
v1::DType DTypeOfSafetensors(std::string_view code);
// The other way round. Empty: the format has no code for it.
std::string_view SafetensorsCode(v1::DType dtype);

}  // namespace msprobe::server
