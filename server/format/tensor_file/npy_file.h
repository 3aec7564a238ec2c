#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/strided_content.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Writes NumPy's .npy version 1.0, little-endian, C order. Types that numpy does not have are converted without loss:
//   bfloat16 and the 8-bit floats are widened to float32, complex32 to complex64;
//   quantized tensors are dequantised to float32;
//   float4_e2m1fn_x2 becomes float32 with two elements (low half first) for each in the last dimension.
// InvalidArgument: the dtype cannot be saved.
absl::StatusOr<std::unique_ptr<TensorFileWriter>> NewNpyFileWriter(TensorDescription description, ByteSink sink);

// Reads .npy versions 1 to 3 with bool, integers, float16 to float64, complex64 or complex128, in either byte order, C
// or Fortran order. Borrows the source. Threads: one at a time.
class NpyFile {
 public:
  // InvalidArgument: the source is not such a file, or has strings or objects.
  static absl::StatusOr<NpyFile> Open(ByteSource& source);

  const TensorDescription& description() const { return layout_.description; }
  const StridedLayout& layout() const { return layout_; }
  uint64_t content_offset() const { return content_offset_; }  // bytes, of the first element
  absl::Status Read(ContentVisitor visit);

 private:
  NpyFile(ByteSource& source, StridedLayout layout, uint64_t content_offset)
      : source_(&source), layout_(std::move(layout)), content_offset_(content_offset) {}

  ByteSource* source_;
  StridedLayout layout_;
  uint64_t content_offset_;
};

}  // namespace msprobe::server
