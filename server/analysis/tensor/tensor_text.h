#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Writes a tensor as text: numbers as printf's %g, with spaces between; a line for each index of all but the last
// dimension, so that a vector is one line. Unimplemented: a dtype whose elements are no numbers one by one.
absl::StatusOr<std::unique_ptr<TensorFileWriter>> NewTensorTextWriter(TensorDescription description, ByteSink sink);

}  // namespace msprobe::server
