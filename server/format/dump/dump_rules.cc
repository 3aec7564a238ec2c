#include "server/format/dump/dump_rules.h"

#include <bit>
#include <optional>

#include "server/format/dtype_name.h"
#include "server/format/tensor_file/widen.h"

namespace msprobe::server {
namespace {

bool IsSmallFloat(v1::DType dtype) { return IsFloat8(dtype) || dtype == v1::DTYPE_FLOAT4_E2M1FN_X2; }

bool IsTorch(std::string_view type) { return type.starts_with("torch."); }

// A floating element from its bytes, which are what the XOR of a single word is.
std::optional<double> FloatOfBytes(v1::DType dtype, uint64_t bytes) {
  switch (dtype) {
    case v1::DTYPE_FLOAT64:
      return std::bit_cast<double>(bytes);
    case v1::DTYPE_FLOAT32:
      return std::bit_cast<float>(static_cast<uint32_t>(bytes));
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_BFLOAT16:
    case v1::DTYPE_FLOAT8_E4M3FN:
    case v1::DTYPE_FLOAT8_E5M2:
    case v1::DTYPE_FLOAT8_E4M3FNUZ:
    case v1::DTYPE_FLOAT8_E5M2FNUZ:
    case v1::DTYPE_FLOAT8_E8M0FNU:
      return WidenToFloat(dtype, static_cast<uint16_t>(bytes));
    default:
      return std::nullopt;
  }
}

uint64_t SignExtended(v1::DType dtype, uint64_t bytes) {
  if (dtype != v1::DTYPE_INT8 && dtype != v1::DTYPE_INT16 && dtype != v1::DTYPE_INT32) return bytes;
  const int shift = 64 - 8 * static_cast<int>(DTypeSize(dtype));
  return static_cast<uint64_t>(static_cast<int64_t>(bytes << shift) >> shift);
}

}  // namespace

DumpRules DumpRulesOf(std::string_view type, v1::DType dtype, bool high_precision) {
  DumpRules rules;
  if (type == "mindspore.Tensor") {
    rules.mean = rules.norm = rules.own_value = rules.real_extremes = dtype != v1::DTYPE_BOOL;
    return rules;
  }
  if (!IsTorch(type)) return rules;
  rules.own_value = dtype != v1::DTYPE_BOOL && !IsComplex(dtype);
  if (high_precision) return rules;
  rules.statistics = !IsSmallFloat(dtype);
  rules.mean = dtype != v1::DTYPE_FLOAT64 && !IsInteger(dtype) && !IsQuantized(dtype);
  rules.norm = rules.mean && !IsComplex(dtype);
  return rules;
}

ShownXor ShowXor(std::string_view type, v1::DType dtype, bool zero_d, uint64_t xor64) {
  if (IsTorch(type) && IsSmallFloat(dtype)) return {};
  if (!zero_d) return xor64;
  if (const std::optional<double> value = FloatOfBytes(dtype, xor64)) return *value;
  return SignExtended(dtype, xor64);
}

}  // namespace msprobe::server
