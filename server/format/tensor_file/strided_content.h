#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// How the elements of a tensor lie in its storage.
struct StridedLayout {
  TensorDescription description;
  std::vector<int64_t> strides;  // in elements, not negative, as many as sizes
  uint64_t offset = 0;           // of the first element, in elements
  bool conjugate = false;        // imaginary parts are stored negated
  bool negative = false;         // elements are stored negated
  bool big_endian = false;
};

// Row-major, no element to be changed on the way: the content is one range of the storage.
bool IsPlain(const StridedLayout& layout);

// InvalidArgument: sizes, strides and offset that pass a storage of `storage_bytes`, a neg bit on what has no sign, or
// content that repeats its storage beyond 1 GiB (an expanded tensor in a file made to fill a disk).
absl::Status CheckLayout(const StridedLayout& layout, uint64_t storage_bytes);

// Gathers the elements of a checked layout.
absl::Status VisitStrided(const StridedLayout& layout, std::string_view storage, ContentVisitor visit);

}  // namespace msprobe::server
