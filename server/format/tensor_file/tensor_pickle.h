#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/format/tensor_file/pickle_tree.h"
#include "server/format/tensor_file/strided_content.h"

namespace msprobe::server {

// A tensor of a file that torch.save wrote, as data.pkl says it.
struct PickledTensor {
  StridedLayout layout;
  std::string storage_key;     // the storage is the entry data/{key}
  uint64_t storage_bytes = 0;  // as claimed by the pickle
  bool requires_grad = false;
};

// What a value is if it is a tensor, a Parameter, a per-tensor quantized tensor, or one of these with attributes of its
// own. Nothing: something else. InvalidArgument: a tensor whose parts are none.
absl::StatusOr<std::optional<PickledTensor>> TensorOf(const PickleTree& tree, const PickleValue& value);

// Reads the pickle of one tensor of TensorOf's kinds. Beyond what PickleTree refuses, its error names whatever is not
// of a closed list of names (torch's rebuild functions, storages and dtypes). Any bytes are safe, and cost little
// memory.
absl::StatusOr<PickledTensor> ReadTensorPickle(std::string_view pickle);

// The pickle of a contiguous tensor with storage key "0", requires_grad False, as torch.save writes it.
// InvalidArgument: torch cannot save the dtype.
absl::StatusOr<std::string> WriteTensorPickle(const TensorDescription& description);

}  // namespace msprobe::server
