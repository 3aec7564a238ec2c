#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// The layout of a tensor's elements in its storage.
struct StridedLayout {
  TensorDescription description;
  std::vector<int64_t> strides;  // in elements, not negative, one for each dimension
  uint64_t offset = 0;           // of the first element, in elements
  bool conjugate = false;        // imaginary parts are stored negated
  bool negative = false;         // elements are stored negated
  bool big_endian = false;
};

// Whether the content is simply a range of the storage: row-major, and no element needs to be changed.
bool IsPlain(const StridedLayout& layout);

// InvalidArgument: sizes, strides and offset go beyond a storage of `storage_bytes`; a type without sign has the neg
// bit; or the content is larger than its storage and than 1 GiB, as an expanded tensor in a file made to fill a disk.
absl::Status CheckLayout(const StridedLayout& layout, uint64_t storage_bytes);

// Visits the elements of a checked layout in row-major order.
absl::Status VisitStrided(const StridedLayout& layout, std::string_view storage, ContentVisitor visit);

}  // namespace msprobe::server
