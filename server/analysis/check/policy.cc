#include "server/analysis/check/policy.h"

#include <algorithm>
#include <array>

#include "server/analysis/check/dtype_standard.h"

namespace msprobe::server {
namespace {

constexpr std::array kPolicies = std::to_array<Policy>({
    {"default", "by ULPs, else against the plain implementation or the size of the output", JudgeByDefault},
    {"documented", "mindstudio-probe's table of standards by operator", JudgeAsDocumented},
    {"torch", "torch.testing.assert_close's tolerances by dtype", JudgeAsTorch},
    {"fp64-ratio", "error at most twice that of the plain implementation", JudgeByRatio},
    {"acc-check", "the first stage of mindstudio-probe's acc_check, without its false passes", JudgeAsAccCheck},
    {"cann", "CANN's operator standards: MARE, MERE and RMSE", JudgeAsCann},
});

constexpr std::array<std::string_view, 5> kQuantising = {"npu_rms_norm_dynamic_quant", "npu_dynamic_quant",
                                                         "npu_quant_lightning_indexer", "npu_quantize",
                                                         "quantize_per_tensor"};

}  // namespace

std::span<const Policy> Policies() { return kPolicies; }

const Policy* PolicyOfName(std::string_view name) {
  const auto* const found =
      std::find_if(kPolicies.begin(), kPolicies.end(), [name](const Policy& each) { return each.name == name; });
  return found == kPolicies.end() ? nullptr : found;
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

Judgement Held(bool passes, std::string_view rule, double measured, double limit) {
  return {passes ? Outcome::kPass : Outcome::kFail, rule, measured, limit};
}

uint64_t NonFiniteMismatches(const Accuracy& accuracy) {
  return accuracy.non_finite.nan + accuracy.non_finite.inf + accuracy.non_finite.inf_sign;
}

bool Quantises(std::string_view operation) {
  return std::find(kQuantising.begin(), kQuantising.end(), operation) != kQuantising.end();
}

std::optional<Judgement> JudgeIntegers(const CheckedOutput& output) {
  const Accuracy& accuracy = output.accuracy;
  if (StandardOf(accuracy.dtype) != nullptr) return std::nullopt;
  if (Quantises(output.operation)) {
    return Held(accuracy.absolute.max <= 1, "quantised_max_abs", accuracy.absolute.max, 1);
  }
  return Held(accuracy.different == 0, "binary", static_cast<double>(accuracy.different), 0);
}

}  // namespace msprobe::server
