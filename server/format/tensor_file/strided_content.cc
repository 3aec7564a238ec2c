#include "server/format/tensor_file/strided_content.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr size_t kChunk = 1 << 20;
constexpr uint64_t kMaxRepeated = 1ull << 30;

bool HasSign(v1::DType dtype) { return dtype >= v1::DTYPE_FLOAT64 && dtype <= v1::DTYPE_BFLOAT16; }

// Bytes of the unit for byte order and sign: an element, or half of a complex element.
size_t ComponentSize(v1::DType dtype) { return IsComplex(dtype) ? DTypeSize(dtype) / 2 : DTypeSize(dtype); }

void Resolve(const StridedLayout& layout, size_t component, size_t size, char* element) {
  const size_t components = size / component;
  for (size_t i = 0; i < components; ++i) {
    char* at = element + i * component;
    if (layout.big_endian) std::reverse(at, at + component);
    const bool flip = layout.negative != (layout.conjugate && i == 1);
    if (flip) at[component - 1] = static_cast<char>(at[component - 1] ^ 0x80);
  }
}

}  // namespace

absl::StatusOr<uint64_t> ContentSize(const TensorDescription& description) {
  const size_t element = DTypeSize(description.dtype);
  if (element == 0) return absl::InvalidArgumentError("the element type has no known size");
  uint64_t size = element;
  bool empty = false;
  for (int64_t dim : description.shape) {
    if (dim < 0) return absl::InvalidArgumentError(Cat("a shape has the size ", dim));
    empty = empty || dim == 0;
    // A dimension of 0 does not excuse the others: PyTorch and NumPy refuse such a shape, whose strides would overflow.
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(std::max<int64_t>(dim, 1)), &size) || size > (1ull << 62)) {
      return absl::InvalidArgumentError("a shape has more elements than any memory");
    }
  }
  return empty ? 0 : size;
}

bool IsPlain(const StridedLayout& layout) {
  if (layout.big_endian || layout.conjugate || layout.negative) return false;
  int64_t expected = 1;
  for (size_t i = layout.strides.size(); i-- > 0;) {
    const int64_t dim = layout.description.shape[i];
    if (dim == 0) return true;
    if (dim != 1 && layout.strides[i] != expected) return false;
    expected *= dim;
  }
  return true;
}

absl::Status CheckLayout(const StridedLayout& layout, uint64_t storage_bytes) {
  const TensorDescription& description = layout.description;
  absl::StatusOr<uint64_t> size = ContentSize(description);
  if (!size.ok()) return size.status();
  if (layout.strides.size() != description.shape.size()) {
    return absl::InvalidArgumentError(Cat(layout.strides.size(), " strides for ", description.shape.size(), " sizes"));
  }
  if (layout.negative && !HasSign(description.dtype) && !IsComplex(description.dtype)) {
    return absl::InvalidArgumentError("a negated view of a type without sign bit");
  }
  if (layout.conjugate && !IsComplex(description.dtype)) {
    return absl::InvalidArgumentError("a conjugated view of a type that is not complex");
  }
  if (*size == 0) return absl::OkStatus();
  uint64_t last = layout.offset;
  for (size_t i = 0; i < layout.strides.size(); ++i) {
    if (layout.strides[i] < 0) return absl::InvalidArgumentError(Cat("the stride ", layout.strides[i]));
    uint64_t reach;
    if (__builtin_mul_overflow(static_cast<uint64_t>(layout.strides[i]),
                               static_cast<uint64_t>(description.shape[i] - 1), &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return absl::InvalidArgumentError("strides pass any memory");
    }
  }
  if (last >= storage_bytes / DTypeSize(description.dtype)) {
    return absl::InvalidArgumentError(Cat("element ", last, " passes a storage of ", storage_bytes, " bytes"));
  }
  if (*size > storage_bytes && *size > kMaxRepeated) {
    return absl::InvalidArgumentError(
        Cat("a view repeats a storage of ", storage_bytes, " bytes to ", *size, "; at most ", kMaxRepeated));
  }
  return absl::OkStatus();
}

absl::Status VisitStrided(const StridedLayout& layout, std::string_view storage, ContentVisitor visit) {
  const TensorDescription& description = layout.description;
  absl::StatusOr<uint64_t> size = ContentSize(description);
  if (!size.ok()) return size.status();
  const size_t element = DTypeSize(description.dtype);
  const size_t component = ComponentSize(description.dtype);
  const bool resolve = layout.big_endian || layout.conjugate || layout.negative;
  const size_t rank = description.shape.size();
  std::vector<int64_t> index(rank, 0);
  uint64_t position = layout.offset;
  std::string chunk;
  chunk.reserve(std::min<uint64_t>(kChunk, *size));
  for (uint64_t remaining = *size / element; remaining > 0; --remaining) {
    chunk.append(storage.substr(position * element, element));
    if (resolve) Resolve(layout, component, element, chunk.data() + chunk.size() - element);
    if (chunk.size() + element > kChunk || remaining == 1) {
      if (absl::Status status = visit(chunk); !status.ok()) return status;
      chunk.clear();
    }
    for (size_t i = rank; i-- > 0;) {
      position += static_cast<uint64_t>(layout.strides[i]);
      if (++index[i] < description.shape[i]) break;
      position -= static_cast<uint64_t>(layout.strides[i]) * static_cast<uint64_t>(description.shape[i]);
      index[i] = 0;
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
