#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/format/tensor_file/strided_content.h"

namespace msprobe::server {

// data.pkl of a file that torch.save wrote for one tensor.
struct PickledTensor {
  StridedLayout layout;
  std::string storage_key;     // the entry is data/{key}
  uint64_t storage_bytes = 0;  // as the pickle claims
  bool requires_grad = false;
};

// Reads the pickle of a tensor, a Parameter or a per-tensor quantized tensor. A fixed interpreter: it knows the opcodes
// that torch.save emits and a closed list of names (the rebuild functions, storages and dtypes of torch), calls
// nothing, and refuses everything else by name. Stack, memo and number of operations are bounded; any bytes are safe to
// give.
absl::StatusOr<PickledTensor> ReadTensorPickle(std::string_view pickle);

// The pickle of a contiguous tensor with storage key "0", requires_grad False, as torch.save writes it.
// InvalidArgument: a dtype that torch cannot save.
absl::StatusOr<std::string> WriteTensorPickle(const TensorDescription& description);

}  // namespace msprobe::server
