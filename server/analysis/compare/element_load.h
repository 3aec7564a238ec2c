#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "server/analysis/table/cell.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Reads `count` elements from memory as numbers. A complex element counts as two elements. 64-bit integers are rounded:
// CellAt has their digits.
using ElementLoad = void (*)(const char* from, size_t count, const TensorDescription& description, double* to);

// Elements that are best loaded at a time: two blocks of doubles fit the first cache.
inline constexpr size_t kLoadedAtOnce = 1024;

// Null: elements of this dtype cannot be read one by one (float4_e2m1fn_x2, unknown dtypes).
ElementLoad LoadOf(v1::DType dtype);

// Bytes of one element as ElementLoad counts: half of a complex element.
size_t LoadedSize(v1::DType dtype);

// Of 64 bits: no double may hold one.
inline bool IsWideInteger(v1::DType dtype) { return dtype == v1::DTYPE_INT64 || dtype == v1::DTYPE_UINT64; }

// Element i of memory as it is; `loaded` is what ElementLoad made of it.
inline Cell CellAt(const char* from, size_t i, v1::DType dtype, double loaded) {
  if (!IsWideInteger(dtype)) return Cell::Real(loaded);
  uint64_t bits;
  std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
  return dtype == v1::DTYPE_UINT64 ? Cell::Unsigned(bits) : Cell::Integer(static_cast<int64_t>(bits));
}

// Of an integer dtype.
inline __int128 IntegerAt(const char* from, size_t i, v1::DType dtype, double loaded) {
  const Cell cell = CellAt(from, i, dtype, loaded);
  return cell.is_whole() ? cell.whole() : static_cast<int64_t>(loaded);
}

}  // namespace msprobe::server
