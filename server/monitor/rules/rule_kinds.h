#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/monitor/rules/rule.h"

namespace msprobe::server {

// What a kind looks at.
enum class RuleSubject : uint8_t {
  kSeries,   // scalars, and the statistics of captured tensors
  kScalars,  // scalars alone
  kTensors,  // captured tensors as a whole: patterns take their names, without a statistic
  kSigns,    // what a comparison of signs gives
  kReplies,  // of language models
};

// One kind of rule. A new kind is a field of v1::Rule, a file here, and a line of the table in rule_kinds.cc.
struct RuleKind {
  std::string_view name;  // of its field: "z_score"
  v1::Rule::KindCase field;
  RuleSubject subject;
  std::string_view series;  // default pattern; empty: it must be given
  // InvalidArgument names the parameter, its value and what is allowed.
  absl::Status (*check)(const v1::Rule& rule);
  std::unique_ptr<Rule> (*make)(const v1::Rule& rule);
};

std::span<const RuleKind> RuleKinds();
// The kind of a rule that CheckRules accepted.
const RuleKind& KindOf(const v1::Rule& rule);
// The pattern over names of series that the rule takes.
std::string_view PatternOf(const v1::Rule& rule);
bool Takes(const v1::Rule& rule, std::string_view series);

// InvalidArgument names the rule and the field.
absl::Status CheckRules(const v1::RuleSet& rules);

// A RuleSet as JSON, checked. InvalidArgument says where it is wrong.
absl::StatusOr<v1::RuleSet> ParseRules(std::string_view json);

// What watches a run where nobody said otherwise: scalars, and NaN or infinity anywhere. These rules read no step that
// has neither.
const v1::RuleSet& DefaultRules();

// One a file.
std::unique_ptr<Rule> MakeNotFinite(const v1::Rule& rule);
std::unique_ptr<Rule> MakeThreshold(const v1::Rule& rule);
std::unique_ptr<Rule> MakeZScore(const v1::Rule& rule);
std::unique_ptr<Rule> MakeNotDecreasing(const v1::Rule& rule);
std::unique_ptr<Rule> MakeOverfit(const v1::Rule& rule);
std::unique_ptr<Rule> MakeChangePoint(const v1::Rule& rule);
std::unique_ptr<Rule> MakeExploding(const v1::Rule& rule);
std::unique_ptr<Rule> MakeVanishing(const v1::Rule& rule);
std::unique_ptr<Rule> MakeAllZero(const v1::Rule& rule);
std::unique_ptr<Rule> MakeUnchanged(const v1::Rule& rule);
std::unique_ptr<Rule> MakeUpdateRatio(const v1::Rule& rule);
std::unique_ptr<Rule> MakeDeadUnits(const v1::Rule& rule);
std::unique_ptr<Rule> MakeSignDrop(const v1::Rule& rule);
std::unique_ptr<Rule> MakeIllResponse(const v1::Rule& rule);
absl::Status CheckIllResponse(const v1::Rule& rule);
std::unique_ptr<Rule> MakeOverflowSoon(const v1::Rule& rule);
std::unique_ptr<Rule> MakeSaturated(const v1::Rule& rule);
std::unique_ptr<Rule> MakeDrift(const v1::Rule& rule);
std::unique_ptr<Rule> MakeRankDiffers(const v1::Rule& rule);
std::unique_ptr<Rule> MakeStraggler(const v1::Rule& rule);
std::unique_ptr<Rule> MakeWeightPoisoned(const v1::Rule& rule);
std::unique_ptr<Rule> MakeExpertCollapse(const v1::Rule& rule);
std::unique_ptr<Rule> MakeAttentionCollapse(const v1::Rule& rule);
std::unique_ptr<Rule> MakeStale(const v1::Rule& rule);
std::unique_ptr<Rule> MakeShapeSurprise(const v1::Rule& rule);
std::unique_ptr<Rule> MakeExpression(const v1::Rule& rule);
absl::Status CheckExpression(const v1::Rule& rule);

// How names of series end that a comparison of signs gives.
inline constexpr std::string_view kSignSimilarity = ":sign_similarity";

}  // namespace msprobe::server
