#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/checkpoint/logical_tensor.h"
#include "server/format/tensor_file/tensor_file.h"
#include "server/format/tensors/arrangement.h"

namespace msprobe::server {

// A tensor in a file, or what becomes of it. No element has been read.
struct FileTensor {
  std::string name;  // in the file; empty: the file is the tensor
  TensorDescription description;
  std::string layout = "ND";                              // of Arrangement
  std::vector<int64_t> sizes = {};                        // before a device arranged it; empty: the file does not say
  std::string path = {};                                  // where row-major elements lie as they are; empty: nowhere
  uint64_t offset = 0;                                    // bytes
  std::function<absl::Status(ContentVisitor)> read = {};  // may be called again
};

// The tensors of one file, in the order of their names.
struct TensorsInFile {
  std::string kind;  // "npy", "pt", "safetensors", "atb", "adump"
  std::vector<FileTensor> tensors;
  std::set<std::string> notes;  // what was left out, and why: sentences
};

// A form of file with tensors in it. One is a line in file_tensor.cc.
// Goes by content, not by name: .npy; a zip of torch.save; safetensors; ATB's TensorBin; a kernel dump of Ascend's
// runtime. Nothing in a file is executed. Errors name the file. InvalidArgument: it is of another form, or damaged.
absl::StatusOr<TensorsInFile> OpenTensorFile(const std::string& path);

// The tensor called `name`; with no name the only one. NotFound, FailedPrecondition: names what is there.
absl::StatusOr<FileTensor> FindTensor(const TensorsInFile& file, const std::string& path, const std::string& name);

// The tensor in another layout. request: `stored_shape` and `element_size` are the tensor's, empty `sizes` too.
absl::StatusOr<FileTensor> Rearranged(const FileTensor& tensor, RearrangementRequest request);

// For the forms, one file each.

// A tensor that lies in files as they are. big_endian: there.
FileTensor PlacedTensor(std::string name, LogicalTensor tensor, bool big_endian = false);
// ATB's TensorBin: lines "key=value" (dtype, format, dims), "$End=1", the elements.
absl::StatusOr<TensorsInFile> OpenAtbTensor(const std::string& path);
// Eight bytes with the header's length, the header (kernel_dump.proto), the elements of inputs, then of outputs.
absl::StatusOr<TensorsInFile> OpenKernelDump(const std::string& path);

}  // namespace msprobe::server
