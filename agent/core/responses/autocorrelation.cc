#include "agent/core/responses/autocorrelation.h"

#include <cmath>
#include <numbers>

namespace msprobe::core {
namespace {

// Of `points` angles that are spread over the circle.
std::vector<double> Over(size_t points, double (*function)(double)) {
  std::vector<double> values(points);
  for (size_t i = 0; i < points; ++i) {
    values[i] = function(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(points));
  }
  return values;
}

}  // namespace

std::vector<double> Autocorrelation(std::span<const double> series, size_t window) {
  const size_t forward = 2 * window, backward = 2 * (window - 1);
  const std::vector<double> cosines = Over(forward, std::cos), sines = Over(forward, std::sin);
  const std::vector<double> back = Over(backward, std::cos);
  std::vector<double> power(window);
  for (size_t k = 0; k < window; ++k) {
    double real = 0, imaginary = 0;
    for (size_t n = 0, phase = 0; n < series.size(); ++n, phase = (phase + k) % forward) {
      real += series[n] * cosines[phase];
      imaginary += series[n] * sines[phase];
    }
    power[k] = real * real + imaginary * imaginary;
  }
  std::vector<double> correlation(window);
  for (size_t lag = 0; lag < window; ++lag) {
    double sum = power[0];
    size_t phase = lag % backward;
    for (size_t k = 1; k + 1 < window; ++k, phase = (phase + lag) % backward) sum += 2 * power[k] * back[phase];
    sum += power[window - 1] * back[phase];
    correlation[lag] = sum;
  }
  const double whole = correlation[0];
  for (double& value : correlation) value /= whole;
  return correlation;
}

}  // namespace msprobe::core
