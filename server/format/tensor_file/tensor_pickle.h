#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/format/tensor_file/strided_content.h"

namespace msprobe::server {

// The content of data.pkl in a file that torch.save wrote for one tensor.
struct PickledTensor {
  StridedLayout layout;
  std::string storage_key;     // the storage is the entry data/{key}
  uint64_t storage_bytes = 0;  // as claimed by the pickle
  bool requires_grad = false;
};

// Reads the pickle of a tensor, a Parameter or a per-tensor quantized tensor. It interprets only the opcodes that
// torch.save emits and a closed list of names (torch's rebuild functions, storages and dtypes). It calls nothing, and
// its error names anything else. Stack, memo and the number of operations are bounded, so any bytes are safe.
absl::StatusOr<PickledTensor> ReadTensorPickle(std::string_view pickle);

// The dtype of torch's storage class of that name: "FloatStorage". DTYPE_UNSPECIFIED: there is none, or it has none.
v1::DType DTypeOfStorage(std::string_view name);

// The pickle of a contiguous tensor with storage key "0", requires_grad False, as torch.save writes it.
// InvalidArgument: torch cannot save the dtype.
absl::StatusOr<std::string> WriteTensorPickle(const TensorDescription& description);

}  // namespace msprobe::server
