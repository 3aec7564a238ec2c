#include "agent/mindspore/host_tensor.h"

#include <utility>

namespace msprobe::capture {
namespace {

using stats::DType;

constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::kFloat64, "Float64"},
    {DType::kFloat32, "Float32"},
    {DType::kFloat16, "Float16"},
    {DType::kBFloat16, "BFloat16"},
    {DType::kInt8, "Int8"},
    {DType::kInt16, "Int16"},
    {DType::kInt32, "Int32"},
    {DType::kInt64, "Int64"},
    {DType::kUInt8, "UInt8"},
    {DType::kUInt16, "UInt16"},
    {DType::kUInt32, "UInt32"},
    {DType::kUInt64, "UInt64"},
    {DType::kBool, "Bool"},
    {DType::kComplex64, "Complex64"},
    {DType::kComplex128, "Complex128"},
    {DType::kFloat8E4M3FN, "Float8E4M3FN"},
    {DType::kFloat8E5M2, "Float8E5M2"},
};

}  // namespace

std::string_view MindsporeDTypeName(DType dtype) {
  for (const auto& [each, name] : kNames) {
    if (each == dtype) return name;
  }
  return {};
}

DType MindsporeDTypeOf(std::string_view name) {
  for (const auto& [dtype, each] : kNames) {
    if (each == name) return dtype;
  }
  return DType::kOther;
}

}  // namespace msprobe::capture
