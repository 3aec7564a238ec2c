#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/json/json_cursor.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensors/file_tensor.h"
#include "server/format/tensors/kernel_dump.pb.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMaxHeader = 16 << 20;
constexpr int kMaxDimensions = 64;

// Numbers of the runtime's DataType.
constexpr std::pair<int, v1::DType> kDTypes[] = {
    {0, v1::DTYPE_INT8},  // undefined: bytes
    {1, v1::DTYPE_FLOAT32},        {2, v1::DTYPE_FLOAT16},      {3, v1::DTYPE_INT8},
    {4, v1::DTYPE_UINT8},          {5, v1::DTYPE_INT16},        {6, v1::DTYPE_UINT16},
    {7, v1::DTYPE_INT32},          {8, v1::DTYPE_INT64},        {9, v1::DTYPE_UINT32},
    {10, v1::DTYPE_UINT64},        {11, v1::DTYPE_BOOL},        {12, v1::DTYPE_FLOAT64},
    {16, v1::DTYPE_COMPLEX64},     {17, v1::DTYPE_COMPLEX128},  {27, v1::DTYPE_BFLOAT16},
    {32, v1::DTYPE_COMPLEX32},     {34, v1::DTYPE_FLOAT8_E5M2}, {35, v1::DTYPE_FLOAT8_E4M3FN},
    {36, v1::DTYPE_FLOAT8_E8M0FNU}};
constexpr int kUndefined = 0;

v1::DType DTypeOfCode(int code) {
  for (const auto& [number, dtype] : kDTypes) {
    if (number == code) return dtype;
  }
  return v1::DTYPE_UNSPECIFIED;
}

// Takes over the next tensor, whose elements lie at `offset`.
template <typename Tensor>
absl::Status Add(std::string name, const Tensor& tensor, const std::string& path, uint64_t offset,
                 TensorsInFile& found) {
  const v1::DType dtype = DTypeOfCode(tensor.data_type());
  if (dtype == v1::DTYPE_UNSPECIFIED) {
    found.notes.insert(Cat(name, " has the data type ", tensor.data_type(), ", which is not read"));
    return absl::OkStatus();
  }
  if (tensor.shape().dim_size() > kMaxDimensions || tensor.original_shape().dim_size() > kMaxDimensions) {
    return absl::InvalidArgumentError(Cat(name, " has over ", kMaxDimensions, " dimensions"));
  }
  TensorDescription description;
  description.dtype = dtype;
  for (uint64_t size : tensor.shape().dim()) description.shape.push_back(static_cast<int64_t>(size));
  const uint64_t element = DTypeSize(dtype);
  const bool is_one = tensor.shape().dim_size() == 0 && tensor.size() == element;
  if (tensor.data_type() == kUndefined || (tensor.shape().dim_size() == 0 && !is_one)) {
    description.shape = {static_cast<int64_t>(tensor.size() / element)};
  }
  auto size = ContentSize(description);
  if (!size.ok()) return absl::InvalidArgumentError(Cat(name, ": ", StdView(size.status().message())));
  if (*size > tensor.size()) {
    return absl::InvalidArgumentError(Cat(name, ": its shape and type need ", *size, " bytes; it has ", tensor.size()));
  }
  FileTensor& made =
      found.tensors.emplace_back(PlacedTensor(name, PlainTensor(dtype, description.shape, path, offset)));
  if (const std::string_view layout = FormatOfCode(tensor.format()); !layout.empty()) {
    made.layout = layout;
  } else {
    found.notes.insert(Cat(name, " has the format ", tensor.format(), ", which is not known"));
  }
  for (uint64_t dim : tensor.original_shape().dim()) made.sizes.push_back(static_cast<int64_t>(dim));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TensorsInFile> OpenKernelDump(const std::string& path) {
  auto source = FileBytes::Open(path);
  if (!source.ok()) return source.status();
  const uint64_t file_size = (*source)->size();
  char prefix[8];
  if (absl::Status status = (*source)->ReadAt(0, prefix); !status.ok()) return status;
  uint64_t length;
  std::memcpy(&length, prefix, sizeof(length));
  if (length > file_size - sizeof(prefix) || length > kMaxHeader) {
    return absl::InvalidArgumentError(Cat("is no tensor file; as a kernel dump its header would have ", length,
                                          " bytes, the file has ", file_size, ", a header at most ", kMaxHeader));
  }
  std::string bytes(length, '\0');
  if (absl::Status status = (*source)->ReadAt(sizeof(prefix), {bytes.data(), bytes.size()}); !status.ok()) {
    return status;
  }
  kernel_dump::Header header;
  if (!header.ParseFromString(bytes) || header.input_size() + header.output_size() == 0) {
    return absl::InvalidArgumentError("is no tensor file; as a kernel dump its header names no input and no output");
  }
  TensorsInFile found{.kind = "adump", .tensors = {}, .notes = {}};
  uint64_t offset = sizeof(prefix) + length;
  const auto add = [&](std::string_view side, const auto& tensors) -> absl::Status {
    for (int i = 0; i < tensors.size(); ++i) {
      const std::string name = Cat(side, ".", i);
      if (tensors[i].size() > file_size - offset) {
        return absl::InvalidArgumentError(
            Cat(name, " should have ", tensors[i].size(), " bytes; ", file_size - offset, " are left in the file"));
      }
      if (absl::Status status = Add(name, tensors[i], path, offset, found); !status.ok()) return status;
      offset += tensors[i].size();
    }
    return absl::OkStatus();
  };
  if (absl::Status status = add("input", header.input()); !status.ok()) return status;
  if (absl::Status status = add("output", header.output()); !status.ok()) return status;
  return found;
}

}  // namespace msprobe::server
