#include "agent/stats/distribution.h"

#include <cmath>
#include <limits>

namespace msprobe::stats {

void DistributionSums::AddDoubles(const double* values, size_t count) {
  constexpr size_t kFormats = Distribution::kFormats.size();
  double powers[4][kLanes] = {};
  double counts[kFormats + 1][kLanes] = {};  // exact: there are few
  const auto add = [&](double value, size_t lane) {
    const double magnitude = std::fabs(value);
    const bool is_finite = magnitude <= std::numeric_limits<double>::max();
    const double x = is_finite ? value - origin_ : 0;
    const double square = x * x;
    powers[0][lane] += x;
    powers[1][lane] += square;
    powers[2][lane] += square * x;
    powers[3][lane] += square * square;
    const double nonzero = magnitude > 0 ? 1 : 0;
    for (size_t i = 0; i < kFormats; ++i) {
      counts[i][lane] += magnitude < Distribution::kFormats[i].smallest_normal ? nonzero : 0;
    }
    counts[kFormats][lane] += is_finite ? 1 : 0;
  };
  size_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(values[at + lane], lane);
  }
  for (; at < count; ++at) add(values[at], 0);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t i = 0; i < 4; ++i) powers_[i] += powers[i][lane];
    for (size_t i = 0; i < kFormats; ++i) underflows_[i] += static_cast<uint64_t>(counts[i][lane]);
    finite_ += static_cast<uint64_t>(counts[kFormats][lane]);
  }
}

double DistributionSums::mean() const { return origin_ + powers_[0] / static_cast<double>(finite_); }

bool DistributionSums::cancels() const {
  if (finite_ == 0) return false;
  const double n = static_cast<double>(finite_);
  const double distance = powers_[0] / n;
  return distance * distance > 0.25 * powers_[1] / n;
}

Distribution DistributionSums::Finish() const {
  Distribution out;
  out.finite = finite_;
  out.underflows = underflows_;
  if (finite_ == 0) return out;
  const double n = static_cast<double>(finite_);
  const double m = powers_[0] / n;
  const double square = powers_[1] / n, cube = powers_[2] / n, fourth = powers_[3] / n;
  const double variance = square - m * m;
  const double central = fourth - 4 * m * cube + 6 * m * m * square - 3 * m * m * m * m;
  out.kurtosis = variance > 0 && std::isfinite(central) ? central / (variance * variance)
                                                        : std::numeric_limits<double>::quiet_NaN();
  return out;
}

}  // namespace msprobe::stats
