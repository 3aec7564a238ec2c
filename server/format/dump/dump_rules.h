#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// Which numbers of a tensor dump.json shows, and how. Where mindstudio-probe writes null, so does this project; the
// rules follow its output for each dtype. They hold for a "type" that begins with "torch."; tensors of MindSpore have
// rules of their own, and numpy arrays show every number.
struct DumpRules {
  bool statistics = true;      // false: Max, Min, Mean and Norm are null (floats of 8 and 4 bits)
  bool mean = true;            // false: Mean is null (float64, integers, bool, quantized types)
  bool norm = true;            // false: Norm is null (the same types, and complex ones)
  bool own_value = false;      // a tensor without dimensions shows its value in all four
  bool real_extremes = false;  // Max and Min of integers are written as reals, 8.0
};

// type: of the tensor, such as "torch.Tensor". high_precision: the configuration has "precision": "high", which lifts
// every rule but own_value.
DumpRules DumpRulesOf(std::string_view type, v1::DType dtype, bool high_precision);

// The "md5" of a tensor with "summary_mode": "xor": null, the value of a tensor without dimensions, or a word, which is
// written as 0x and 16 hexadecimal digits.
using ShownXor = std::variant<std::monostate, double, uint64_t>;

// xor64: of the bytes of a tensor with at least one element; an empty tensor shows null. zero_d: the tensor has no
// dimensions.
ShownXor ShowXor(std::string_view type, v1::DType dtype, bool zero_d, uint64_t xor64);

}  // namespace msprobe::server
