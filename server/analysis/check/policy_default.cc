#include <algorithm>
#include <cmath>

#include "server/analysis/check/dtype_standard.h"
#include "server/analysis/check/policy.h"

namespace msprobe::server {
namespace {

// What a good kernel may be off where nothing else is known: the last rounding, and an approximation's error.
constexpr double kAlwaysUlps = 4;
// Times the errors of the plain implementation. One element may be unlucky, the mean of them is not.
constexpr double kMaxFactor = 8;
constexpr double kRmsFactor = 3;

// Roundings, of numbers as large as the output's largest, that an operator of this dtype adds up. Operators of 8 and 16
// bits round only what they write, and their operands.
struct Roundings {
  double max;
  double rms;
};
Roundings WithPlain(int mantissa_bits) { return mantissa_bits > 10 ? Roundings{16, 4} : Roundings{2, 0.5}; }
Roundings Alone(int mantissa_bits) { return mantissa_bits > 10 ? Roundings{64, 16} : Roundings{4, 1}; }

}  // namespace

Judgement JudgeByDefault(const CheckedOutput& output) {
  const Accuracy& accuracy = output.accuracy;
  const uint64_t mismatches = NonFiniteMismatches(accuracy);
  if (mismatches != 0) return Held(false, "inf_nan", static_cast<double>(mismatches), 0);
  if (auto verdict = JudgeIntegers(output)) return *verdict;
  if (accuracy.ulp.max <= kAlwaysUlps) return Held(true, "max_ulp", accuracy.ulp.max, kAlwaysUlps);
  const DTypeStandard& standard = *StandardOf(accuracy.dtype);
  const double rounding = std::ldexp(1.0, -standard.mantissa_bits);
  const double golden_rms =
      accuracy.golden_norm / std::sqrt(static_cast<double>(std::max<uint64_t>(accuracy.compared, 1)));
  const Roundings roundings = output.plain ? WithPlain(standard.mantissa_bits) : Alone(standard.mantissa_bits);
  double max = roundings.max * rounding * accuracy.golden_max;
  double rms = roundings.rms * rounding * golden_rms;
  if (output.plain) {
    max = std::max(max, kMaxFactor * output.plain->absolute.max);
    rms = std::max(rms, kRmsFactor * output.plain->absolute.rms);
  }
  if (accuracy.absolute.max > max) return Held(false, "max_abs", accuracy.absolute.max, max);
  return Held(accuracy.absolute.rms <= rms, "rms_abs", accuracy.absolute.rms, rms);
}

}  // namespace msprobe::server
