#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace msprobe::stats {

// How the elements of a floating-point tensor are spread. ComputeStatistics gathers it where it is asked for, from each
// block while that lies in the first-level cache. Elements that are not finite are left out.
struct Distribution {
  // A number format that a tensor might be cast to, and its smallest normal number. What lies below that, and is not 0,
  // loses precision or becomes 0.
  struct Format {
    std::string_view name;
    double smallest_normal;
  };
  static constexpr std::array<Format, 4> kFormats = {Format{"bf16", 0x1p-126}, Format{"fp16", 0x1p-14},
                                                     Format{"e4m3", 0x1p-6}, Format{"e5m2", 0x1p-14}};

  uint64_t finite = 0;                                 // 0: no floating dtype, or no finite element
  std::array<uint64_t, kFormats.size()> underflows{};  // elements that are not 0 and below the smallest normal number
  double kurtosis =
      0;  // mean of (x - mean)^4 by the square of the variance: 3 of a normal distribution; NaN: all equal
};

// Gathers a Distribution block by block. Threads: one at a time.
class DistributionSums {
 public:
  // The distance of each element to `origin` is raised to powers.
  explicit DistributionSums(double origin = 0) : origin_(origin) {}

  void AddDoubles(const double* values, size_t count);

  Distribution Finish() const;
  // Whether the sums cancel: the mean is so far from the origin that they should be made again about it.
  bool cancels() const;
  double mean() const;

 private:
  // Sums of one lane lie beside each other, so that a vector holds several.
  static constexpr size_t kLanes = 8;

  const double origin_;
  uint64_t finite_ = 0;
  std::array<uint64_t, Distribution::kFormats.size()> underflows_{};
  double powers_[4] = {};  // sums of x, x^2, x^3 and x^4
};

}  // namespace msprobe::stats
