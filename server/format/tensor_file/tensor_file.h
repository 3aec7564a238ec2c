#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// Everything that a tensor file says about its tensor, except the elements.
struct TensorDescription {
  v1::DType dtype = v1::DTYPE_FLOAT32;
  std::vector<int64_t> shape;  // empty: 0-D
  std::string device = "cpu";
  // Quantized dtypes, per tensor: value = (element - zero_point) * scale.
  double scale = 1;
  int64_t zero_point = 0;
};

// Bytes of the contiguous elements. InvalidArgument: a negative size, an overflow, or a dtype without a size.
absl::StatusOr<uint64_t> ContentSize(const TensorDescription& description);

// Takes the bytes of a file, in order.
using ByteSink = absl::AnyInvocable<absl::Status(std::string_view)>;

// Takes the elements of a file: contiguous little-endian bytes in row-major order, in chunks of at most 1 MiB.
using ContentVisitor = absl::FunctionRef<absl::Status(std::string_view chunk)>;

// Writes the file of one tensor: any number of Append, then Finish. Passes the content on at once.
// Threads: one at a time.
class TensorFileWriter {
 public:
  virtual ~TensorFileWriter() = default;

  virtual const TensorDescription& description() const = 0;
  // InvalidArgument: more bytes than the described tensor has.
  virtual absl::Status Append(std::string_view content) = 0;
  // InvalidArgument: fewer bytes than the described tensor has.
  virtual absl::Status Finish() = 0;
};

}  // namespace msprobe::server
