#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace msprobe::core {

// The autocorrelation of `series`, at most `window` values of mean 0, as mindstudio-probe 26.2.0 computes it: the power
// at the first `window` of 2 * window frequencies, transformed back as the half of 2 * (window - 1) frequencies, and
// divided by its first value. Lags 0 to window - 1; the later ones mirror these. window is at least 2. O(window^2).
std::vector<double> Autocorrelation(std::span<const double> series, size_t window);

}  // namespace msprobe::core
