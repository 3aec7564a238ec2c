#include <algorithm>
#include <cmath>
#include <limits>

#include "server/analysis/check/benchmark_level.h"
#include "server/analysis/check/dtype_standard.h"
#include "server/analysis/check/policy.h"

namespace msprobe::server {
namespace {

// An error of nothing is no divisor.
double Ratio(double error, double plain) {
  if (error == 0) return 0;
  return plain > 0 ? error / plain : std::numeric_limits<double>::infinity();
}

}  // namespace

Judgement JudgeAsCann(const CheckedOutput& output) {
  const Accuracy& accuracy = output.accuracy;
  const uint64_t mismatches = NonFiniteMismatches(accuracy);
  if (mismatches != 0) return Held(false, "inf_nan", static_cast<double>(mismatches), 0);
  if (auto verdict = JudgeIntegers(output)) return *verdict;
  if (!output.plain) {
    const double threshold = StandardOf(accuracy.dtype)->cann_threshold;
    if (accuracy.mere >= threshold) return Held(false, "mere", accuracy.mere, threshold);
    return Held(accuracy.mare < 10 * threshold, "mare", accuracy.mare, 10 * threshold);
  }
  const BenchmarkLevel level = LevelOf(output.operation);
  const double mare = Ratio(accuracy.mare, output.plain->mare);
  if (mare > level.max_rel) return Held(false, "mare_ratio", mare, level.max_rel);
  const double mere = Ratio(accuracy.mere, output.plain->mere);
  if (mere > level.mean_rel) return Held(false, "mere_ratio", mere, level.mean_rel);
  const double rms = Ratio(accuracy.absolute.rms, output.plain->absolute.rms);
  return Held(rms <= level.rms, "rmse_ratio", rms, level.rms);
}

}  // namespace msprobe::server
