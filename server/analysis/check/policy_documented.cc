#include <algorithm>
#include <array>
#include <cmath>

#include "server/analysis/check/benchmark_level.h"
#include "server/analysis/check/dtype_standard.h"
#include "server/analysis/check/policy.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr auto kBinary = std::to_array<std::string_view>({
    "abs",          "abs_",        "absolute",     "absolute_",  "argmin",        "bitwise_and",    "bitwise_and_",
    "broadcast_to", "ceil",        "ceil_",        "equal",      "fill_",         "flatten",        "floor",
    "floor_",       "gather",      "greater",      "greater_",   "greater_equal", "greater_equal_", "histc",
    "isfinite",     "isnan",       "less",         "less_",      "less_equal",    "less_equal_",    "logical_and",
    "logical_and_", "logical_not", "logical_not_", "logical_or", "logical_or_",   "masked_fill",    "masked_fill_",
    "max_pool3d",   "maximum",     "minimum",      "neg",        "neg_",          "nonzero",        "not_equal",
    "not_equal_",   "one_hot",     "pad",          "relu",       "reshape",       "round",          "round_",
    "select",       "sign",        "sign_",        "sort",       "tile",          "topk",           "transpose",
    "transpose_",   "tril",        "tril_",        "triu",       "triu_",         "type_as",
});
constexpr auto kAbsoluteThreshold = std::to_array<std::string_view>({
    "mul",        "mul_",        "__mul__", "__imul__",   "__rmul__",    "add",      "add_",   "__add__",
    "__iadd__",   "__radd__",    "div",     "div_",       "__div__",     "__idiv__", "divide", "divide_",
    "leaky_relu", "leaky_relu_", "prelu",   "reciprocal", "reciprocal_", "rsqrt",    "rsqrt_", "square",
    "square_",    "sub",         "sub_",    "rsub",       "__isub__",    "__sub__",
});
constexpr auto kUlp = std::to_array<std::string_view>({
    "__matmul__",
    "addbmm",
    "addbmm_",
    "addmm",
    "addmm_",
    "baddbmm",
    "baddbmm_",
    "bilinear",
    "bmm",
    "chain_matmul",
    "hspmm",
    "linear",
    "matmul",
    "mm",
    "mv",
    "smm",
    "sspaddmm",
});
constexpr auto kThousandth = std::to_array<std::string_view>({"conv1d", "conv2d"});
constexpr auto kAccumulative = std::to_array<std::string_view>({"test_api"});

template <size_t kSize>
bool Lists(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Rates of elements over a limit, none of which may be.
Judgement JudgeRates(const Accuracy& accuracy, uint64_t over) {
  const uint64_t mismatches = NonFiniteMismatches(accuracy);
  if (mismatches != 0) return Held(false, "inf_nan", static_cast<double>(mismatches), 0);
  return Held(over == 0, "rel_err_rate", Share(over, accuracy.split.normal), 0);
}

Judgement JudgeAbsoluteThreshold(const Accuracy& accuracy) {
  Judgement verdict = JudgeRates(accuracy, accuracy.split.normal_over);
  if (verdict.outcome != Outcome::kPass) return verdict;
  const double small = Share(accuracy.split.small_over_threshold, accuracy.split.small);
  return Held(small == 0, "abs_err_rate", small, 0);
}

Judgement JudgeAccumulative(const Accuracy& accuracy, const DTypeStandard& standard) {
  Judgement verdict = JudgeRates(accuracy, accuracy.split.over_accumulative);
  if (verdict.outcome != Outcome::kPass) return verdict;
  const double balance = accuracy.error_balance();
  return Held(balance <= standard.accumulative_balance, "error_balance", balance, standard.accumulative_balance);
}

// Unlike the other standards it has no word on NaN and infinity: a mean over them is neither below a limit nor equal.
Judgement JudgeUlp(const CheckedOutput& output) {
  const Accuracy& accuracy = output.accuracy;
  const uint64_t mismatches = NonFiniteMismatches(accuracy);
  if (mismatches != 0) return Held(false, "inf_nan", static_cast<double>(mismatches), 0);
  const double share = Share(accuracy.ulp.over_limit, accuracy.elements);
  const bool single = accuracy.dtype == v1::DTYPE_FLOAT32;
  if (single && accuracy.ulp.mean < 64) return Held(true, "mean_ulp", accuracy.ulp.mean, 64);
  const double limit = single ? 0.05 : 0.001;
  if (share < limit || !output.plain || IsFloat8(accuracy.dtype)) {
    return Held(share < limit, "ulp_share", share, limit);
  }
  const double floor = StandardOf(accuracy.dtype)->ratio_floor;
  const double ratio = share / std::max(Share(output.plain->ulp.over_limit, output.plain->elements), floor);
  return Held(ratio < 1, "ulp_share_ratio", ratio, 1);
}

double NormalRms(const Accuracy& accuracy) {
  if (accuracy.elements == 0) return 0;
  const auto elements = static_cast<double>(accuracy.elements);
  const double masked = elements - static_cast<double>(accuracy.split.normal);
  return std::sqrt(accuracy.split.normal_squares / elements * (elements / (elements - masked + 1e-4) + 1e-4));
}

// With a second implementation: ratios of errors.
Judgement JudgeBenchmark(const CheckedOutput& output) {
  const Accuracy& accuracy = output.accuracy;
  const Accuracy& plain = *output.plain;
  const double floor = StandardOf(accuracy.dtype)->ratio_floor;
  const BenchmarkLevel level = LevelOf(output.operation);
  const auto ratio = [floor](double error, double of_plain) { return error / std::max(of_plain, floor); };
  struct Rule {
    std::string_view name;
    double ratio;
    double limit;
  };
  const Rule rules[] = {
      {"small_value_ratio",
       ratio(Share(accuracy.split.small_over_benchmark, accuracy.split.small),
             Share(plain.split.small_over_benchmark, plain.split.small)),
       2},
      {"rmse_ratio", ratio(NormalRms(accuracy), NormalRms(plain)), level.rms},
      {"max_rel_ratio", ratio(accuracy.split.normal_max_rel, plain.split.normal_max_rel), level.max_rel},
      {"mean_rel_ratio", ratio(accuracy.split.normal_mean_rel, plain.split.normal_mean_rel), level.mean_rel},
  };
  const Rule* worst = rules;
  for (const Rule& rule : rules) {
    if (rule.ratio / rule.limit > worst->ratio / worst->limit) worst = &rule;
  }
  return Held(worst->ratio <= worst->limit, worst->name, worst->ratio, worst->limit);
}

}  // namespace

std::string_view DocumentedStandard(const CheckedOutput& output) {
  const v1::DType dtype = output.accuracy.dtype;
  if (StandardOf(dtype) == nullptr) return "binary";
  if (IsFloat8(dtype)) return "ulp";
  if (dtype == v1::DTYPE_FLOAT64 || IsComplex(dtype)) return "";
  if (Lists(kBinary, output.operation)) return "binary";
  if (Lists(kAbsoluteThreshold, output.operation)) return "absolute_threshold";
  if (Lists(kUlp, output.operation)) return "ulp";
  if (Lists(kThousandth, output.operation)) return "double_thousandth";
  if (Lists(kAccumulative, output.operation)) return "accumulative";
  return "benchmark";
}

Judgement JudgeAsDocumented(const CheckedOutput& output) {
  const Accuracy& accuracy = output.accuracy;
  if (auto verdict = JudgeIntegers(output)) return *verdict;
  const std::string_view standard = DocumentedStandard(output);
  if (standard.empty()) return {Outcome::kUndecided, "dtype", 0, 0};
  if (standard == "binary") {
    const double rate = Share(accuracy.different + NonFiniteMismatches(accuracy), accuracy.elements);
    return Held(rate == 0, "binary", rate, 0);
  }
  if (standard == "absolute_threshold") return JudgeAbsoluteThreshold(accuracy);
  if (standard == "ulp") return JudgeUlp(output);
  if (standard == "double_thousandth") {
    const double share = accuracy.relative.share_under[2] * Share(accuracy.compared, accuracy.elements);
    return Held(share >= 0.999, "double_thousandth", share, 0.999);
  }
  if (standard == "accumulative") return JudgeAccumulative(accuracy, *StandardOf(accuracy.dtype));
  return output.plain ? JudgeBenchmark(output) : JudgeFirstStage(accuracy);
}

}  // namespace msprobe::server
