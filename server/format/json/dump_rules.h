#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// Which numbers of a tensor dump.json shows. What mindstudio-probe leaves null is null here, too; the rules follow its
// output for each dtype. They hold for "type": "torch...": numpy arrays and tensors of MindSpore show all of them.
struct DumpRules {
  bool statistics = true;  // false: Max, Min, Mean and Norm are null (floats of 8 and 4 bits)
  bool mean = true;        // false: Mean is null (float64, integers, bool, quantized types)
  bool norm = true;        // false: Norm is null (these, and complex types)
  bool own_value = false;  // a tensor without dimensions shows its value in all four
};

// type: of the tensor, e.g. "torch.Tensor". high_precision: with "precision": "high" only own_value remains of the
// rules.
DumpRules DumpRulesOf(std::string_view type, v1::DType dtype, bool high_precision);

// What "md5" shows with "summary_mode": "xor": nothing (null), the value of a tensor without dimensions, or a word that
// is written as 0x and 16 hexadecimal digits. An empty tensor shows nothing, either.
using ShownXor = std::variant<std::monostate, double, uint64_t>;

// xor64: of the bytes of a tensor of this type that has at least one element. zero_d: it has no dimensions.
ShownXor ShowXor(std::string_view type, v1::DType dtype, bool zero_d, uint64_t xor64);

}  // namespace msprobe::server
