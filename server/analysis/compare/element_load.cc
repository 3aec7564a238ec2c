#include "server/analysis/compare/element_load.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "server/format/dtype_name.h"
#include "server/format/tensor_file/widen.h"

namespace msprobe::server {
namespace {

template <typename T>
void LoadPlain(const char* from, size_t count, const TensorDescription&, double* to) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = static_cast<double>(value);
  }
}

void LoadBfloat16(const char* from, size_t count, const TensorDescription&, double* to) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * 2, 2);
    to[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
}

void LoadFloat16(const char* from, size_t count, const TensorDescription&, double* to) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * 2, 2);
    // The exponent moves from bias 15 to 127; subnormals come right by the multiplication.
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t rest = static_cast<uint32_t>(bits & 0x7FFFu) << 13;
    const bool non_finite = (bits & 0x7C00u) == 0x7C00u;
    const float scaled = std::bit_cast<float>(rest) * 0x1p112f;
    const float value = non_finite ? std::bit_cast<float>(rest | 0x7F800000u) : scaled;
    to[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
}

void LoadFloat8(const char* from, size_t count, const TensorDescription& description, double* to) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = WidenToFloat(description.dtype, static_cast<uint8_t>(from[i]));
  }
}

void LoadBool(const char* from, size_t count, const TensorDescription&, double* to) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i] != 0 ? 1 : 0;
}

template <typename T>
void LoadQuantized(const char* from, size_t count, const TensorDescription& description, double* to) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = (static_cast<double>(value) - static_cast<double>(description.zero_point)) * description.scale;
  }
}

}  // namespace

ElementLoad LoadOf(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT64:
    case v1::DTYPE_COMPLEX128:
      return LoadPlain<double>;
    case v1::DTYPE_FLOAT32:
    case v1::DTYPE_COMPLEX64:
      return LoadPlain<float>;
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_COMPLEX32:
      return LoadFloat16;
    case v1::DTYPE_BFLOAT16:
      return LoadBfloat16;
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
    case v1::DTYPE_FLOAT8_E4M3FNUZ:
    case v1::DTYPE_FLOAT8_E5M2FNUZ:
    case v1::DTYPE_FLOAT8_E8M0FNU:
      return LoadFloat8;
    case v1::DTYPE_INT8:
      return LoadPlain<int8_t>;
    case v1::DTYPE_INT16:
      return LoadPlain<int16_t>;
    case v1::DTYPE_INT32:
      return LoadPlain<int32_t>;
    case v1::DTYPE_INT64:
      return LoadPlain<int64_t>;
    case v1::DTYPE_UINT8:
      return LoadPlain<uint8_t>;
    case v1::DTYPE_UINT16:
      return LoadPlain<uint16_t>;
    case v1::DTYPE_UINT32:
      return LoadPlain<uint32_t>;
    case v1::DTYPE_UINT64:
      return LoadPlain<uint64_t>;
    case v1::DTYPE_BOOL:
      return LoadBool;
    case v1::DTYPE_QINT8:
      return LoadQuantized<int8_t>;
    case v1::DTYPE_QUINT8:
      return LoadQuantized<uint8_t>;
    case v1::DTYPE_QINT32:
      return LoadQuantized<int32_t>;
    default:
      return nullptr;
  }
}

size_t LoadedSize(v1::DType dtype) { return DTypeSize(dtype) / (IsComplex(dtype) ? 2 : 1); }

}  // namespace msprobe::server
