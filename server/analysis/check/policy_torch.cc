#include "server/analysis/check/policy.h"

namespace msprobe::server {

Judgement JudgeAsTorch(const CheckedOutput& output) {
  const uint64_t mismatches = NonFiniteMismatches(output.accuracy);
  if (mismatches != 0) return Held(false, "inf_nan", static_cast<double>(mismatches), 0);
  // An exact dtype has no tolerance, whatever the operator.
  if (JudgeIntegers(output)) {
    return Held(output.accuracy.different == 0, "binary", static_cast<double>(output.accuracy.different), 0);
  }
  return Held(output.accuracy.over_torch == 0, "over_tolerance", static_cast<double>(output.accuracy.over_torch), 0);
}

}  // namespace msprobe::server
