#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// A box of a tensor's elements, and where they lie in one file.
struct TensorPiece {
  std::string path;
  uint64_t offset = 0;           // bytes, of the first element
  std::vector<int64_t> strides;  // bytes, for each dimension, not negative
  std::vector<int64_t> begin;    // the box in the tensor
  std::vector<int64_t> shape;

  friend bool operator==(const TensorPiece&, const TensorPiece&) = default;
};

// A tensor as the model has it, wherever a checkpoint keeps its parts.
struct LogicalTensor {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  std::vector<TensorPiece> pieces;

  uint64_t elements() const;  // of a checked tensor
  friend bool operator==(const LogicalTensor&, const LogicalTensor&) = default;
};

// A tensor that lies in one file, row-major.
LogicalTensor PlainTensor(v1::DType dtype, std::vector<int64_t> shape, std::string path, uint64_t offset);

// Sizes are sensible, and the pieces cover every element once.
absl::Status CheckTensor(const LogicalTensor& tensor);

// The parts one behind the other along `dimension`. InvalidArgument: their dtypes or other sizes differ.
absl::StatusOr<LogicalTensor> JoinTensors(const std::vector<LogicalTensor>& parts, size_t dimension);
// Indices [begin, end) of `dimension`, which must exist.
LogicalTensor SliceTensor(const LogicalTensor& tensor, size_t dimension, int64_t begin, int64_t end);

// Reads a checked tensor in row-major order. Memory depends on neither its size nor, up to a few hundred, the number of
// its pieces; each piece that is not in row-major order in its file keeps up to 32 MiB of it. One thread at a time.
class LogicalReader {
 public:
  explicit LogicalReader(const LogicalTensor& tensor);  // borrowed
  ~LogicalReader();

  // The next elements into `to`, which has room for `count` of them. Errors: the system's, or OutOfRange where a file
  // ends too early.
  absl::Status Read(char* to, uint64_t count);

 private:
  class Cursor;
  uint64_t done_ = 0;
  std::vector<std::unique_ptr<Cursor>> cursors_;
};

}  // namespace msprobe::server
