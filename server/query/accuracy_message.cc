#include "server/query/accuracy_message.h"

#include "absl/strings/str_join.h"
#include "server/format/cat.h"

namespace msprobe::server {

void Fill(const Accuracy& accuracy, v1::Accuracy& out) {
  out.set_dtype(accuracy.dtype);
  out.set_elements(accuracy.elements);
  out.set_compared(accuracy.compared);
  out.set_different(accuracy.different);
  out.set_nan_mismatches(accuracy.non_finite.nan);
  out.set_inf_mismatches(accuracy.non_finite.inf);
  out.set_inf_sign_mismatches(accuracy.non_finite.inf_sign);
  out.set_non_finite_same(accuracy.non_finite.same);
  out.set_max_abs(accuracy.absolute.max);
  out.set_mean_abs(accuracy.absolute.mean);
  out.set_rms_abs(accuracy.absolute.rms);
  out.set_abs_p50(accuracy.absolute.percentiles[0]);
  out.set_abs_p90(accuracy.absolute.percentiles[1]);
  out.set_abs_p99(accuracy.absolute.percentiles[2]);
  out.set_abs_p999(accuracy.absolute.percentiles[3]);
  out.set_max_rel(accuracy.relative.max);
  out.set_mean_rel(accuracy.relative.mean);
  out.set_rms_rel(accuracy.relative.rms);
  out.set_share_under_1e2(accuracy.relative.share_under[0]);
  out.set_share_under_5e3(accuracy.relative.share_under[1]);
  out.set_share_under_1e3(accuracy.relative.share_under[2]);
  out.set_share_under_1e4(accuracy.relative.share_under[3]);
  out.set_mare(accuracy.mare);
  out.set_mere(accuracy.mere);
  out.set_cosine(accuracy.cosine);
  out.set_target_norm(accuracy.target_norm);
  out.set_golden_norm(accuracy.golden_norm);
  out.set_golden_max(accuracy.golden_max);
  out.set_ulp_max(accuracy.ulp.max);
  out.set_ulp_mean(accuracy.ulp.mean);
  out.set_ulp_over_one(accuracy.ulp.over_one);
  out.set_ulp_over_limit(accuracy.ulp.over_limit);
  out.set_small(accuracy.split.small);
  out.set_small_over_threshold(accuracy.split.small_over_threshold);
  out.set_small_over_benchmark(accuracy.split.small_over_benchmark);
  out.set_normal(accuracy.split.normal);
  out.set_normal_over(accuracy.split.normal_over);
  out.set_normal_max_rel(accuracy.split.normal_max_rel);
  out.set_normal_mean_rel(accuracy.split.normal_mean_rel);
  out.set_normal_squares(accuracy.split.normal_squares);
  out.set_over_accumulative(accuracy.split.over_accumulative);
  out.set_higher(accuracy.higher);
  out.set_lower(accuracy.lower);
  out.set_over_torch(accuracy.over_torch);
  out.set_worst_index(accuracy.worst.index);
  out.set_worst_output(accuracy.worst.target.number());
  out.set_worst_golden(accuracy.worst.golden.number());
}

Accuracy AccuracyOf(const v1::Accuracy& message) {
  Accuracy accuracy;
  accuracy.dtype = message.dtype();
  accuracy.elements = message.elements();
  accuracy.compared = message.compared();
  accuracy.different = message.different();
  accuracy.non_finite.nan = message.nan_mismatches();
  accuracy.non_finite.inf = message.inf_mismatches();
  accuracy.non_finite.inf_sign = message.inf_sign_mismatches();
  accuracy.non_finite.same = message.non_finite_same();
  accuracy.absolute.max = message.max_abs();
  accuracy.absolute.mean = message.mean_abs();
  accuracy.absolute.rms = message.rms_abs();
  accuracy.absolute.percentiles = {message.abs_p50(), message.abs_p90(), message.abs_p99(), message.abs_p999()};
  accuracy.relative.max = message.max_rel();
  accuracy.relative.mean = message.mean_rel();
  accuracy.relative.rms = message.rms_rel();
  accuracy.relative.share_under = {message.share_under_1e2(), message.share_under_5e3(), message.share_under_1e3(),
                                   message.share_under_1e4()};
  accuracy.mare = message.mare();
  accuracy.mere = message.mere();
  accuracy.cosine = message.cosine();
  accuracy.target_norm = message.target_norm();
  accuracy.golden_norm = message.golden_norm();
  accuracy.golden_max = message.golden_max();
  accuracy.ulp = {.max = message.ulp_max(),
                  .mean = message.ulp_mean(),
                  .over_half = message.different(),
                  .over_one = message.ulp_over_one(),
                  .over_limit = message.ulp_over_limit()};
  accuracy.split = {.small = message.small(),
                    .small_over_threshold = message.small_over_threshold(),
                    .small_over_benchmark = message.small_over_benchmark(),
                    .normal = message.normal(),
                    .normal_over = message.normal_over(),
                    .normal_max_rel = message.normal_max_rel(),
                    .normal_mean_rel = message.normal_mean_rel(),
                    .normal_squares = message.normal_squares(),
                    .over_accumulative = message.over_accumulative()};
  accuracy.higher = message.higher();
  accuracy.lower = message.lower();
  accuracy.over_torch = message.over_torch();
  accuracy.worst = {message.worst_index(), Cell::Real(message.worst_output()), Cell::Real(message.worst_golden())};
  return accuracy;
}

void Fill(const Judgement& verdict, const Policy& policy, v1::Verdict& out) {
  out.set_outcome(static_cast<v1::Verdict::Outcome>(static_cast<int>(verdict.outcome) + 1));
  out.set_policy(std::string(policy.name));
  out.set_rule(std::string(verdict.rule));
  out.set_measured(verdict.measured);
  out.set_limit(verdict.limit);
}

absl::StatusOr<const Policy*> AskedPolicy(const std::string& name) {
  if (name.empty()) return Policies().data();
  if (const Policy* policy = PolicyOfName(name); policy != nullptr) return policy;
  return absl::InvalidArgumentError(
      Cat("policy \"", name, "\" does not exist; there are ",
          absl::StrJoin(Policies(), ", ", [](std::string* out, const Policy& each) { out->append(each.name); })));
}

}  // namespace msprobe::server
