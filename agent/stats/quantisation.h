#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "agent/stats/kernels.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// What a floating-point tensor would lose if it were cast to a narrower format.
//
// Scales are those of the hardware's recipes:
//   bf16, fp16                       none
//   e4m3, e5m2                       one for the tensor: 448 or 57344 by the largest magnitude, as TransformerEngine's
//                                    Float8CurrentScaling
//   mxfp8_e4m3, mxfp8_e5m2, mxfp4    a power of two for 32 elements, by OCP Microscaling Formats 1.0, section 6.3
//   nvfp4                            e4m3 for 16 elements, and a float for the tensor, as TransformerEngine's
//                                    NVFP4BlockScaling without its Hadamard transform and stochastic rounding
// Blocks lie in the last dimension. Rounding is to the nearest, ties to even. What is too large becomes the largest
// number of the format. Elements that are not finite are left out. Arithmetic is that of floats.
struct Quantisation {
  static constexpr std::array<std::string_view, kQuantisedFormats> kFormats = {
      "bf16", "fp16", "e4m3", "e5m2", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"};
  using Formats = uint32_t;  // bit i: kFormats[i]

  struct Loss {
    uint64_t zeroed = 0;                                      // elements that are not 0 and become 0
    double error = std::numeric_limits<double>::quiet_NaN();  // norm of the error by norm of the tensor; NaN: that is 0
  };
  std::array<Loss, kQuantisedFormats> losses;  // of the formats that were asked for
};

// Quantises the elements of a tensor as they come, in row-major order. Threads: one at a time.
class QuantisationSums {
 public:
  // largest: the tensor's largest magnitude, for formats with a scale of the tensor.
  QuantisationSums(const TensorView& view, const Kernels& kernels, Quantisation::Formats formats, double largest = 0);

  // Formats that need the largest magnitude, which is known when the tensor has been read once.
  static Quantisation::Formats NeedLargest(Quantisation::Formats formats);

  void Add(const double* values, size_t count);
  // Sets the losses of the formats. norm: of the finite elements.
  void Finish(double norm, Quantisation* out);

 private:
  static constexpr size_t kBlock = 32;  // a multiple of every format's block

  void AddFloats(const float* values, size_t count);
  void Quantise(const float* values, size_t count);

  const Kernels& kernels_;
  const Quantisation::Formats formats_;
  const size_t row_;  // elements behind which a block ends early; 0: none does
  std::array<float, kQuantisedFormats> scales_{};
  std::array<QuantisedSums, kQuantisedFormats> sums_{};
  size_t in_row_ = 0;
  size_t filled_ = 0;  // of pending_
  alignas(64) float pending_[kBlock];
};

}  // namespace msprobe::stats
