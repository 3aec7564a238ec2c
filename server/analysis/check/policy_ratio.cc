#include "server/analysis/check/dtype_standard.h"
#include "server/analysis/check/policy.h"

namespace msprobe::server {
namespace {

// torch._dynamo.utils.same adds a tenth of its tolerance of 1e-4; flash-attention's tests add as much.
constexpr double kAllowance = 1e-5;
constexpr double kMaxRatioFactor = 2;  // flash-attention

double RmsFactor(const Accuracy& accuracy) {
  const bool half = accuracy.dtype == v1::DTYPE_FLOAT16 || accuracy.dtype == v1::DTYPE_BFLOAT16;
  return half || accuracy.elements < 1000 ? 3 : 2;
}

}  // namespace

Judgement JudgeByRatio(const CheckedOutput& output) {
  const Accuracy& accuracy = output.accuracy;
  const uint64_t mismatches = NonFiniteMismatches(accuracy);
  if (mismatches != 0) return Held(false, "inf_nan", static_cast<double>(mismatches), 0);
  if (auto verdict = JudgeIntegers(output)) return *verdict;
  if (accuracy.ulp.max <= 0.5) return Held(true, "max_ulp", accuracy.ulp.max, 0.5);  // cannot be better
  if (!output.plain) return {Outcome::kUndecided, "plain_implementation", 0, 0};
  const double most = kMaxRatioFactor * output.plain->absolute.max + kAllowance;
  if (accuracy.absolute.max > most) return Held(false, "max_abs_ratio", accuracy.absolute.max, most);
  const double rms = RmsFactor(accuracy) * output.plain->absolute.rms + kAllowance;
  return Held(accuracy.absolute.rms <= rms, "rms_ratio", accuracy.absolute.rms, rms);
}

}  // namespace msprobe::server
