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

// Writes the file that torch.save writes for a contiguous tensor with requires_grad False. It keeps dtype and device,
// and torch.load reads it with weights_only=True. Equal tensors with the same name give equal files.
// `name`: the file's stem, which torch uses as the folder inside the archive; any text, cut to 255 bytes.
// InvalidArgument: the dtype cannot be saved.
absl::StatusOr<std::unique_ptr<TensorFileWriter>> NewPtFileWriter(std::string_view name, TensorDescription description,
                                                                  ByteSink sink);

// Reads a file that torch.save wrote for one tensor of any layout, a Parameter, or a tensor quantized per tensor.
// Borrows the source. Threads: one at a time.
class PtFile {
 public:
  // Reads no elements. InvalidArgument says why the source is not such a file.
  static absl::StatusOr<PtFile> Open(ByteSource& source);

  const TensorDescription& description() const { return tensor_.layout.description; }
  bool requires_grad() const { return tensor_.requires_grad; }
  // May be called again. Contiguous elements are streamed from the file; for other layouts the whole storage is read
  // into memory.
  absl::Status Read(ContentVisitor visit);

 private:
  PtFile(ZipReader zip, PickledTensor tensor, ZipEntry storage)
      : zip_(std::move(zip)), tensor_(std::move(tensor)), storage_(std::move(storage)) {}

  ZipReader zip_;
  PickledTensor tensor_;
  ZipEntry storage_;
};

}  // namespace msprobe::server
