#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace msprobe::stats {

class FleetingMemory;

// Element types, numbered as msprobe.v1.DType on the wire.
enum class DType : uint8_t {
  kUnspecified = 0,
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kFloat8E4M3FN = 5,
  kFloat8E5M2 = 6,
  kFloat8E4M3FNUZ = 7,
  kFloat8E5M2FNUZ = 8,
  kFloat8E8M0FNU = 9,
  kFloat4E2M1FNX2 = 10,
  kInt8 = 11,
  kInt16 = 12,
  kInt32 = 13,
  kInt64 = 14,
  kUInt8 = 15,
  kUInt16 = 16,
  kUInt32 = 17,
  kUInt64 = 18,
  kBool = 19,
  kComplex32 = 20,
  kComplex64 = 21,
  kComplex128 = 22,
  kQInt8 = 23,
  kQUInt8 = 24,
  kQInt32 = 25,
  kOther = 63,
};

// Bytes of one element; 0 for kUnspecified and kOther.
size_t ElementSize(DType dtype);

// A tensor in host memory, borrowed. Any layout: transposed, expanded (stride 0), negative strides.
struct TensorView {
  const void* data = nullptr;  // the first element; may be null if a size is 0
  DType dtype = DType::kUnspecified;
  std::span<const int64_t> sizes;    // empty: a 0-D tensor of one element
  std::span<const int64_t> strides;  // in elements, one for each size
  bool conjugate = false;            // torch's lazy conj bit: the value has the imaginary part negated
  bool negative = false;             // torch's lazy neg bit: the value is the element negated
  // Quantized dtypes: value = (element - zero_point) * scale.
  double scale = 1;
  int64_t zero_point = 0;
  // Where the memory may be freed meanwhile, it is read through this. ComputeStatistics alone does so, of a view with
  // HasPlainFloats and without an executor.
  FleetingMemory* fleeting = nullptr;

  int64_t element_count() const;
  bool is_contiguous() const;  // row-major without gaps; dimensions of size 1 do not matter
};

}  // namespace msprobe::stats
