#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// A tensor of MindSpore as capture sees it: its memory on the host, which whoever made this keeps alive and unchanged
// until the tensor has been read.
struct HostTensor {
  const void* data = nullptr;  // null: there is no memory that can be read
  stats::DType dtype = stats::DType::kOther;
  std::string_view dtype_name;  // as MindSpore prints it: "Float32"
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;  // in elements
  bool is_parameter = false;         // it outlives the step, and `data` is its own memory, no copy
};

// "Float32" of float32; empty for a type that MindSpore has none for.
std::string_view MindsporeDTypeName(stats::DType dtype);
// kOther: none has this name.
stats::DType MindsporeDTypeOf(std::string_view name);

}  // namespace msprobe::capture
