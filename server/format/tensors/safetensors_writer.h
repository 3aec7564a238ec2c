#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/format/tensor_file/tensor_file.h"
#include "server/format/tensors/file_tensor.h"

namespace msprobe::server {

// Writes a safetensors file of these tensors, in their order; one without a name is called "tensor".
// InvalidArgument: the format has no code for a dtype. Other errors are those of tensors and sink.
absl::Status WriteSafetensors(const std::vector<FileTensor>& tensors, ByteSink& sink);

}  // namespace msprobe::server
