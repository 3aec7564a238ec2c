#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/tensor_file/tensor_file.h"
#include "server/format/tensor_file/tensor_pickle.h"
#include "server/format/tensor_file/zip_reader.h"

namespace msprobe::server {

// Writes the file that torch.save(tensor) writes: contiguous, requires_grad False, dtype and device kept; torch.load
// reads it with weights_only=True. Equal tensors of one name give equal files.
// `name`: the file's stem, which torch uses as the archive's folder; any text, cut to 255 bytes.
// InvalidArgument: the dtype cannot be saved.
absl::StatusOr<std::unique_ptr<TensorFileWriter>> NewPtFileWriter(std::string_view name, TensorDescription description,
                                                                  ByteSink sink);

// Reads what torch.save wrote for one tensor: any layout, Parameters, quantized per tensor. Borrows the source.
// One thread at a time.
class PtFile {
 public:
  // InvalidArgument: not such a file, and why. Reads no element.
  static absl::StatusOr<PtFile> Open(ByteSource& source);

  const TensorDescription& description() const { return tensor_.layout.description; }
  bool requires_grad() const { return tensor_.requires_grad; }
  // May be called again. Elements that lie plainly in the file are streamed; for others the storage is read whole.
  absl::Status Read(ContentVisitor visit);

 private:
  PtFile(ZipReader zip, PickledTensor tensor, ZipEntry storage)
      : zip_(std::move(zip)), tensor_(std::move(tensor)), storage_(std::move(storage)) {}

  ZipReader zip_;
  PickledTensor tensor_;
  ZipEntry storage_;
};

}  // namespace msprobe::server
