#pragma once

#include "msprobe/v1/record.pb.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// The description in the file of a leaf's tensor. The scale of a quantized tensor comes from attributes_json.
TensorDescription DescribeTensor(const v1::TensorLeaf& leaf);

}  // namespace msprobe::server
