#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensors/file_tensor.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMaxHeader = 64 << 10;

// Numbers of aclDataType.
constexpr std::pair<int, v1::DType> kDTypes[] = {
    {0, v1::DTYPE_FLOAT32},    {1, v1::DTYPE_FLOAT16},     {2, v1::DTYPE_INT8},     {3, v1::DTYPE_INT32},
    {4, v1::DTYPE_UINT8},      {6, v1::DTYPE_INT16},       {7, v1::DTYPE_UINT16},   {8, v1::DTYPE_UINT32},
    {9, v1::DTYPE_INT64},      {10, v1::DTYPE_UINT64},     {11, v1::DTYPE_FLOAT64}, {12, v1::DTYPE_BOOL},
    {16, v1::DTYPE_COMPLEX64}, {17, v1::DTYPE_COMPLEX128}, {27, v1::DTYPE_BFLOAT16}};

absl::Status Bad(std::string_view key, std::string_view value, std::string_view right) {
  return absl::InvalidArgumentError(
      Cat("its header says ", key, "=", absl::CHexEscape(AbslView(value.substr(0, 60))), "; ", right));
}

}  // namespace

absl::StatusOr<TensorsInFile> OpenAtbTensor(const std::string& path) {
  auto source = FileBytes::Open(path);
  if (!source.ok()) return source.status();
  const uint64_t file_size = (*source)->size();
  std::string header(std::min(kMaxHeader, file_size), '\0');
  if (absl::Status status = (*source)->ReadAt(0, {header.data(), header.size()}); !status.ok()) return status;

  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  int64_t format = 2;
  std::optional<std::vector<int64_t>> shape;
  uint64_t offset = 0;
  for (size_t begin = 0; offset == 0;) {
    const size_t end = header.find('\n', begin);
    if (end == std::string::npos) {
      return absl::InvalidArgumentError("its header has no line $End within 64 KiB");
    }
    const std::string_view line = std::string_view(header).substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = line.find('=');
    const std::string_view key = line.substr(0, equals);
    if (equals == std::string_view::npos || line.find('=', equals + 1) != std::string_view::npos) {
      return absl::InvalidArgumentError(
          Cat("its header has the line \"", absl::CHexEscape(AbslView(line.substr(0, 60))), "\"; lines are key=value"));
    }
    const std::string_view value = line.substr(equals + 1);
    if (key == "$End") {
      offset = begin;
    } else if (key == "dtype") {
      int number = -1;
      for (const auto& [code, known] : kDTypes) {
        if (absl::SimpleAtoi(AbslView(value), &number) && number == code) dtype = known;
      }
      if (dtype == v1::DTYPE_UNSPECIFIED) return Bad(key, value, "0 to 4, 6 to 12, 16, 17 and 27 are read");
    } else if (key == "format") {
      if (!absl::SimpleAtoi(AbslView(value), &format)) return Bad(key, value, "a number is right");
    } else if (key == "dims") {
      shape.emplace();
      for (absl::string_view part : absl::StrSplit(AbslView(value), ',', absl::SkipEmpty())) {
        if (!absl::SimpleAtoi(part, &shape->emplace_back()) || shape->size() > 64) {
          return Bad(key, value, "up to 64 numbers with commas between are right");
        }
      }
    } else if (key == "data") {
      return Bad(key, value, "elements in another file are not read");
    }
  }
  if (dtype == v1::DTYPE_UNSPECIFIED || !shape) return absl::InvalidArgumentError("its header lacks dtype or dims");
  TensorDescription description;
  description.dtype = dtype;
  description.shape = *shape;
  auto size = ContentSize(description);
  if (!size.ok()) return size.status();
  if (*size != file_size - offset) {
    return absl::InvalidArgumentError(
        Cat("its dims and dtype need ", *size, " bytes of elements; it has ", file_size - offset));
  }
  TensorsInFile found{.kind = "atb", .tensors = {}, .notes = {}};
  found.tensors.push_back(PlacedTensor("", PlainTensor(dtype, *std::move(shape), path, offset)));
  const std::string_view layout = FormatOfCode(format);
  if (layout.empty()) {
    found.notes.insert(Cat("its format ", format, " is not known; its dims are shown as they are"));
  } else {
    found.tensors.back().layout = layout;
  }
  return found;
}

}  // namespace msprobe::server
