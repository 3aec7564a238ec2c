#include "server/format/checkpoint/safetensors_dtype.h"

#include <utility>

namespace msprobe::server {
namespace {

constexpr std::pair<std::string_view, v1::DType> kCodes[] = {{"F64", v1::DTYPE_FLOAT64},
                                                             {"F32", v1::DTYPE_FLOAT32},
                                                             {"F16", v1::DTYPE_FLOAT16},
                                                             {"BF16", v1::DTYPE_BFLOAT16},
                                                             {"I64", v1::DTYPE_INT64},
                                                             {"I32", v1::DTYPE_INT32},
                                                             {"I16", v1::DTYPE_INT16},
                                                             {"I8", v1::DTYPE_INT8},
                                                             {"U64", v1::DTYPE_UINT64},
                                                             {"U32", v1::DTYPE_UINT32},
                                                             {"U16", v1::DTYPE_UINT16},
                                                             {"U8", v1::DTYPE_UINT8},
                                                             {"BOOL", v1::DTYPE_BOOL},
                                                             {"C64", v1::DTYPE_COMPLEX64},
                                                             {"F8_E4M3", v1::DTYPE_FLOAT8_E4M3FN},
                                                             {"F8_E5M2", v1::DTYPE_FLOAT8_E5M2},
                                                             {"F8_E8M0", v1::DTYPE_FLOAT8_E8M0FNU}};

}  // namespace

v1::DType DTypeOfSafetensors(std::string_view code) {
  for (const auto& [known, dtype] : kCodes) {
    if (known == code) return dtype;
  }
  return v1::DTYPE_UNSPECIFIED;
}

std::string_view SafetensorsCode(v1::DType dtype) {
  for (const auto& [code, known] : kCodes) {
    if (known == dtype) return code;
  }
  return {};
}

}  // namespace msprobe::server
