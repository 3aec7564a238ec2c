#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "agent/stats/distribution.h"
#include "agent/stats/quantisation.h"

namespace msprobe::capture {

// How the elements of a floating-point tensor are spread, beside its statistics.
struct Spread {
  // The parts that a MemoryReader gathers.
  struct Parts {
    bool distribution = false;
    stats::Quantisation::Formats formats = 0;
    bool any() const { return distribution || formats != 0; }
  };

  stats::Distribution distribution;
  stats::Quantisation quantisation;
  uint64_t elements = 0;
};

// One number of a Spread, by its name:
//   kurtosis
//   underflow_FORMAT   the share of finite elements that are not 0 and lie below the format's smallest normal number
//   to_zero_FORMAT     the share of all elements that are not 0 and become 0 in the format
//   error_FORMAT       the norm of what the format loses, by the norm of the tensor
// FORMAT is of stats::Distribution for the first, of stats::Quantisation for the others.
class SpreadStatistic {
 public:
  // Nothing: it is no such name.
  static std::optional<SpreadStatistic> Named(std::string_view name);

  Spread::Parts parts() const;
  // NaN: the tensor has no such number.
  double Of(const Spread& spread) const;

 private:
  enum class Kind : uint8_t { kKurtosis, kUnderflow, kToZero, kError };
  SpreadStatistic(Kind kind, size_t format) : kind_(kind), format_(format) {}

  Kind kind_;
  size_t format_;
};

}  // namespace msprobe::capture
