#include "server/format/dtype_name.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

struct Entry {
  v1::DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<Entry, 25> kEntries = {{
    {v1::DTYPE_FLOAT64, "torch.float64", 8},
    {v1::DTYPE_FLOAT32, "torch.float32", 4},
    {v1::DTYPE_FLOAT16, "torch.float16", 2},
    {v1::DTYPE_BFLOAT16, "torch.bfloat16", 2},
    {v1::DTYPE_FLOAT8_E4M3FN, "torch.float8_e4m3fn", 1},
    {v1::DTYPE_FLOAT8_E5M2, "torch.float8_e5m2", 1},
    {v1::DTYPE_FLOAT8_E4M3FNUZ, "torch.float8_e4m3fnuz", 1},
    {v1::DTYPE_FLOAT8_E5M2FNUZ, "torch.float8_e5m2fnuz", 1},
    {v1::DTYPE_FLOAT8_E8M0FNU, "torch.float8_e8m0fnu", 1},
    {v1::DTYPE_FLOAT4_E2M1FN_X2, "torch.float4_e2m1fn_x2", 1},
    {v1::DTYPE_INT8, "torch.int8", 1},
    {v1::DTYPE_INT16, "torch.int16", 2},
    {v1::DTYPE_INT32, "torch.int32", 4},
    {v1::DTYPE_INT64, "torch.int64", 8},
    {v1::DTYPE_UINT8, "torch.uint8", 1},
    {v1::DTYPE_UINT16, "torch.uint16", 2},
    {v1::DTYPE_UINT32, "torch.uint32", 4},
    {v1::DTYPE_UINT64, "torch.uint64", 8},
    {v1::DTYPE_BOOL, "torch.bool", 1},
    {v1::DTYPE_COMPLEX32, "torch.complex32", 4},
    {v1::DTYPE_COMPLEX64, "torch.complex64", 8},
    {v1::DTYPE_COMPLEX128, "torch.complex128", 16},
    {v1::DTYPE_QINT8, "torch.qint8", 1},
    {v1::DTYPE_QUINT8, "torch.quint8", 1},
    {v1::DTYPE_QINT32, "torch.qint32", 4},
}};

const Entry* Find(v1::DType dtype) {
  auto it = std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& entry) { return entry.dtype == dtype; });
  return it == kEntries.end() ? nullptr : &*it;
}

}  // namespace

std::string_view TorchDTypeName(v1::DType dtype) {
  const Entry* entry = Find(dtype);
  return entry == nullptr ? std::string_view() : entry->name;
}

v1::DType DTypeOfName(std::string_view name) {
  const std::string bare = absl::AsciiStrToLower(AbslView(name.starts_with("torch.") ? name.substr(6) : name));
  for (const Entry& entry : kEntries) {
    if (entry.name.substr(6) == bare) return entry.dtype;
  }
  return v1::DTYPE_OTHER;
}

size_t DTypeSize(v1::DType dtype) {
  const Entry* entry = Find(dtype);
  return entry == nullptr ? 0 : entry->size;
}

bool IsQuantized(v1::DType dtype) {
  return dtype == v1::DTYPE_QINT8 || dtype == v1::DTYPE_QUINT8 || dtype == v1::DTYPE_QINT32;
}

bool IsComplex(v1::DType dtype) {
  return dtype == v1::DTYPE_COMPLEX32 || dtype == v1::DTYPE_COMPLEX64 || dtype == v1::DTYPE_COMPLEX128;
}

bool IsFloat8(v1::DType dtype) { return dtype >= v1::DTYPE_FLOAT8_E4M3FN && dtype <= v1::DTYPE_FLOAT8_E8M0FNU; }

bool IsInteger(v1::DType dtype) { return dtype >= v1::DTYPE_INT8 && dtype <= v1::DTYPE_BOOL; }

}  // namespace msprobe::server
