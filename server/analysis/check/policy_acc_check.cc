#include "server/analysis/check/policy.h"

namespace msprobe::server {

Judgement JudgeFirstStage(const Accuracy& accuracy) {
  const uint64_t mismatches = NonFiniteMismatches(accuracy);
  if (accuracy.elements > 1 && (accuracy.golden_norm > 0 || accuracy.target_norm > 0) &&
      accuracy.non_finite.same + mismatches == 0 && accuracy.cosine <= 0.99) {
    return Held(false, "cosine", accuracy.cosine, 0.99);
  }
  if (mismatches == 0 && accuracy.absolute.max < 0.001) return Held(true, "max_abs", accuracy.absolute.max, 0.001);
  const double compared = Share(accuracy.compared, accuracy.elements - accuracy.non_finite.same);
  const auto share = [&](int i) { return accuracy.relative.share_under[static_cast<size_t>(i)] * compared; };
  const bool half = accuracy.dtype == v1::DTYPE_FLOAT16 || accuracy.dtype == v1::DTYPE_BFLOAT16;
  if (half && share(0) <= 0.99) return Held(false, "double_hundredth", share(0), 0.99);
  Judgement verdict = Held(share(2) > 0.999, "double_thousandth", share(2), 0.999);
  if (half && verdict.outcome == Outcome::kFail) verdict.outcome = Outcome::kWarning;
  if (half || verdict.outcome == Outcome::kFail) return verdict;
  verdict = Held(share(3) > 0.9999, "double_ten_thousandth", share(3), 0.9999);
  if (verdict.outcome == Outcome::kFail) verdict.outcome = Outcome::kWarning;
  return verdict;
}

// What the default refuses, the first stage does not excuse: its limits know neither the scale of the output nor NaN.
Judgement JudgeAsAccCheck(const CheckedOutput& output) {
  const Judgement refused = JudgeByDefault(output);
  if (refused.rule == "inf_nan") return refused;
  if (auto verdict = JudgeIntegers(output)) return *verdict;
  const Judgement verdict = JudgeFirstStage(output.accuracy);
  return verdict.outcome != Outcome::kFail && refused.outcome == Outcome::kFail ? refused : verdict;
}

}  // namespace msprobe::server
