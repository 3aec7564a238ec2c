#include "server/monitor/rules/rule_kinds.h"

#include <fnmatch.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "server/format/cat.h"
#include "server/monitor/capture_settings.h"

namespace msprobe::server {
namespace {

absl::Status Fine(const v1::Rule&) { return absl::OkStatus(); }

absl::Status Wrong(std::string_view field, double value, std::string_view allowed) {
  return absl::InvalidArgumentError(Cat(field, " is ", Shown(value), "; it should be ", allowed));
}

absl::Status NotNegative(std::string_view field, double value) {
  return value >= 0 ? absl::OkStatus() : Wrong(field, value, "at least 0; 0, or leaving it out, is the default");
}

// Each point looks at all of its window, for the rules of all runs on one thread.
constexpr uint32_t kLongestWindow = 10'000;

absl::Status Short(std::string_view field, uint32_t points) {
  return points <= kLongestWindow ? absl::OkStatus() : Wrong(field, points, "at most 10000");
}

absl::Status CheckThreshold(const v1::Rule& rule) {
  const v1::Threshold& threshold = rule.threshold();
  if (!threshold.has_above() && !threshold.has_below()) {
    return absl::InvalidArgumentError("threshold has neither above nor below");
  }
  if (threshold.has_above() && threshold.has_below() && threshold.above() < threshold.below()) {
    return absl::InvalidArgumentError(Cat("threshold.above is ", Shown(threshold.above()), " and threshold.below is ",
                                          Shown(threshold.below()),
                                          ", so every value offends; above should be at least below"));
  }
  return absl::OkStatus();
}

absl::Status CheckZScore(const v1::Rule& rule) {
  if (rule.z_score().window() == 1) return Wrong("z_score.window", 1, "at least 2");
  if (absl::Status s = Short("z_score.window", rule.z_score().window()); !s.ok()) return s;
  if (absl::Status s = Short("z_score.warm_up", rule.z_score().warm_up()); !s.ok()) return s;
  const absl::Status status = NotNegative("z_score.threshold", rule.z_score().threshold());
  return status.ok() ? NotNegative("z_score.floor", rule.z_score().floor()) : status;
}

absl::Status CheckChangePoint(const v1::Rule& rule) {
  if (absl::Status s = Short("change_point.warm_up", rule.change_point().warm_up()); !s.ok()) return s;
  const absl::Status status = NotNegative("change_point.threshold", rule.change_point().threshold());
  return status.ok() ? NotNegative("change_point.drift", rule.change_point().drift()) : status;
}

absl::Status CheckExploding(const v1::Rule& rule) {
  if (absl::Status s = Short("exploding.window", rule.exploding().window()); !s.ok()) return s;
  if (absl::Status s = Short("exploding.warm_up", rule.exploding().warm_up()); !s.ok()) return s;
  const absl::Status status = NotNegative("exploding.limit", rule.exploding().limit());
  return status.ok() ? NotNegative("exploding.factor", rule.exploding().factor()) : status;
}

absl::Status CheckUpdateRatio(const v1::Rule& rule) {
  const double least = rule.update_ratio().least();
  const double greatest = rule.update_ratio().greatest();
  if (absl::Status s = NotNegative("update_ratio.least", least); !s.ok()) return s;
  if (absl::Status s = NotNegative("update_ratio.greatest", greatest); !s.ok()) return s;
  if (greatest > 0 && greatest < least) {
    return Wrong("update_ratio.greatest", greatest, Cat("at least update_ratio.least, which is ", Shown(least)));
  }
  return absl::OkStatus();
}

absl::Status CheckDeadUnits(const v1::Rule& rule) {
  const double share = rule.dead_units().share();
  return share >= 0 && share < 1
             ? absl::OkStatus()
             : Wrong("dead_units.share", share, "from 0 to below 1; 0, or leaving it out, is the default");
}

absl::Status CheckSignDrop(const v1::Rule& rule) {
  const v1::SignDrop& signs = rule.sign_drop();
  if (signs.golden().empty()) {
    return absl::InvalidArgumentError("sign_drop.golden is needed: the run whose signs are right");
  }
  for (const auto& [field, share] : {std::pair("sign_drop.least", signs.least()), {"sign_drop.drop", signs.drop()}}) {
    if (!(share >= 0 && share <= 1)) return Wrong(field, share, "from 0 to 1; 0, or leaving it out, is the default");
  }
  return absl::OkStatus();
}

// 0 is the default, and what divides or multiplies is above 1.
absl::Status AboveOne(std::string_view field, double value) {
  return value == 0 || value > 1 ? absl::OkStatus()
                                 : Wrong(field, value, "above 1; 0, or leaving it out, is the default");
}

absl::Status FirstWrong(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& each : checks) {
    if (!each.ok()) return each;
  }
  return absl::OkStatus();
}

absl::Status CheckOverflowSoon(const v1::Rule& rule) {
  return AboveOne("overflow_soon.margin", rule.overflow_soon().margin());
}

absl::Status CheckSaturated(const v1::Rule& rule) {
  const v1::Saturated& saturated = rule.saturated();
  if (!(saturated.share() >= 0 && saturated.share() < 1)) {
    return Wrong("saturated.share", saturated.share(), "from 0 to below 1; 0, or leaving it out, is the default");
  }
  if (saturated.has_lower() != saturated.has_upper()) {
    return absl::InvalidArgumentError("saturated has one of lower and upper; it should have both, or none");
  }
  if (saturated.has_lower() && !(saturated.lower() < saturated.upper())) {
    return Wrong("saturated.upper", saturated.upper(), "above saturated.lower");
  }
  return absl::OkStatus();
}

absl::Status CheckDrift(const v1::Rule& rule) {
  const v1::Drift& drift = rule.drift();
  return FirstWrong({Short("drift.window", drift.window()), Short("drift.warm_up", drift.warm_up()),
                     NotNegative("drift.threshold", drift.threshold()), NotNegative("drift.floor", drift.floor())});
}

absl::Status CheckRankDiffers(const v1::Rule& rule) {
  return NotNegative("rank_differs.tolerance", rule.rank_differs().tolerance());
}

absl::Status CheckStraggler(const v1::Rule& rule) { return AboveOne("straggler.factor", rule.straggler().factor()); }

absl::Status CheckWeightPoisoned(const v1::Rule& rule) {
  return AboveOne("weight_poisoned.factor", rule.weight_poisoned().factor());
}

absl::Status CheckExpertCollapse(const v1::Rule& rule) {
  const v1::ExpertCollapse& collapse = rule.expert_collapse();
  return FirstWrong({NotNegative("expert_collapse.entropy", collapse.entropy()),
                     NotNegative("expert_collapse.load", collapse.load())});
}

absl::Status CheckAttentionCollapse(const v1::Rule& rule) {
  const v1::AttentionCollapse& collapse = rule.attention_collapse();
  return FirstWrong({NotNegative("attention_collapse.entropy", collapse.entropy()),
                     NotNegative("attention_collapse.logit", collapse.logit())});
}

constexpr std::string_view kGradients = "*.parameters_grad.*:norm";

const std::array kKinds = std::to_array<RuleKind>({
    {"not_finite", v1::Rule::kNotFinite, RuleSubject::kSeries, "*", Fine, MakeNotFinite},
    {"threshold", v1::Rule::kThreshold, RuleSubject::kSeries, "", CheckThreshold, MakeThreshold},
    {"z_score", v1::Rule::kZScore, RuleSubject::kSeries, "*loss*", CheckZScore, MakeZScore},
    {"not_decreasing", v1::Rule::kNotDecreasing, RuleSubject::kSeries, "loss", Fine, MakeNotDecreasing},
    {"overfit", v1::Rule::kOverfit, RuleSubject::kScalars, "*", Fine, MakeOverfit},
    {"change_point", v1::Rule::kChangePoint, RuleSubject::kSeries, "", CheckChangePoint, MakeChangePoint},
    {"exploding", v1::Rule::kExploding, RuleSubject::kSeries, kGradients, CheckExploding, MakeExploding},
    {"vanishing", v1::Rule::kVanishing, RuleSubject::kSeries, kGradients, Fine, MakeVanishing},
    {"all_zero", v1::Rule::kAllZero, RuleSubject::kSeries, kGradients, Fine, MakeAllZero},
    {"unchanged", v1::Rule::kUnchanged, RuleSubject::kSeries, "", Fine, MakeUnchanged},
    {"update_ratio", v1::Rule::kUpdateRatio, RuleSubject::kSeries, "update_ratio/*", CheckUpdateRatio, MakeUpdateRatio},
    {"dead_units", v1::Rule::kDeadUnits, RuleSubject::kSeries, "*relu*.output.*:zero_share", CheckDeadUnits,
     MakeDeadUnits},
    {"sign_drop", v1::Rule::kSignDrop, RuleSubject::kSigns, "*:sign_similarity", CheckSignDrop, MakeSignDrop},
    {"ill_response", v1::Rule::kIllResponse, RuleSubject::kReplies, "response/*", CheckIllResponse, MakeIllResponse},
    {"overflow_soon", v1::Rule::kOverflowSoon, RuleSubject::kTensors, "*.output.*", CheckOverflowSoon,
     MakeOverflowSoon},
    {"saturated", v1::Rule::kSaturated, RuleSubject::kTensors, "*.output.*", CheckSaturated, MakeSaturated},
    {"drift", v1::Rule::kDrift, RuleSubject::kSeries, "Module.*.output.*:norm", CheckDrift, MakeDrift},
    {"rank_differs", v1::Rule::kRankDiffers, RuleSubject::kSeries, "*.parameter:norm", CheckRankDiffers,
     MakeRankDiffers},
    {"straggler", v1::Rule::kStraggler, RuleSubject::kScalars, "*step_time*", CheckStraggler, MakeStraggler},
    {"weight_poisoned", v1::Rule::kWeightPoisoned, RuleSubject::kScalars, "*:norm", CheckWeightPoisoned,
     MakeWeightPoisoned},
    {"expert_collapse", v1::Rule::kExpertCollapse, RuleSubject::kScalars, "*", CheckExpertCollapse, MakeExpertCollapse},
    {"attention_collapse", v1::Rule::kAttentionCollapse, RuleSubject::kScalars, "*attention_*:m[ea]*",
     CheckAttentionCollapse, MakeAttentionCollapse},
    {"stale", v1::Rule::kStale, RuleSubject::kTensors, "", Fine, MakeStale},
    {"shape_surprise", v1::Rule::kShapeSurprise, RuleSubject::kTensors, "*.input.*", Fine, MakeShapeSurprise},
    {"expression", v1::Rule::kExpression, RuleSubject::kScalars, "*", CheckExpression, MakeExpression},
});

// A comparison with NaN never holds, so a rule with one would stay silent.
absl::Status CheckNoNan(const v1::Rule& rule, const RuleKind& kind) {
  const google::protobuf::Message& parameters =
      rule.GetReflection()->GetMessage(rule, rule.GetDescriptor()->FindFieldByNumber(kind.field));
  std::vector<const google::protobuf::FieldDescriptor*> given;
  parameters.GetReflection()->ListFields(parameters, &given);
  for (const auto* const field : given) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) continue;
    const double value = parameters.GetReflection()->GetDouble(parameters, field);
    if (std::isnan(value)) return Wrong(Cat(kind.name, ".", field->name()), value, "a number");
  }
  return absl::OkStatus();
}

const RuleKind* FindKind(const v1::Rule& rule) {
  for (const RuleKind& kind : kKinds) {
    if (kind.field == rule.kind_case()) return &kind;
  }
  return nullptr;
}

v1::RuleSet MakeDefaults() {
  v1::RuleSet rules;
  const auto add = [&rules](const char* name) {
    v1::Rule* const rule = rules.add_rules();
    rule->set_name(name);
    return rule;
  };
  add("not-finite")->mutable_not_finite();
  v1::ZScore* const jumps = add("loss-jumps")->mutable_z_score();
  jumps->set_patience(3);
  jumps->set_above_only(true);
  v1::Rule* rule = add("gradient-explodes");
  rule->set_series("*grad_norm*");
  rule->mutable_exploding();
  rule = add("gradient-is-zero");
  rule->set_series("*.parameters_grad.reduced:norm");
  rule->set_scalars_only(true);
  rule->mutable_all_zero();
  rule = add("update-too-large");
  rule->set_series("update_ratio/*");
  // A parameter that begins at 0 is doubled by its second update.
  rule->mutable_threshold()->set_above(5);
  add("weight-poisoned")->mutable_weight_poisoned();
  rule = add("rank-differs");
  rule->set_scalars_only(true);
  rule->mutable_rank_differs();
  add("experts-collapse")->mutable_expert_collapse();
  add("attention-collapses")->mutable_attention_collapse();
  add("overfit")->mutable_overfit();
  add("ill-response")->mutable_ill_response();
  return rules;
}

}  // namespace

std::string Shown(double value) { return absl::StrFormat("%.6g", value); }

std::span<const RuleKind> RuleKinds() { return kKinds; }

const RuleKind& KindOf(const v1::Rule& rule) { return *FindKind(rule); }

std::string_view PatternOf(const v1::Rule& rule) {
  return rule.series().empty() ? KindOf(rule).series : std::string_view(rule.series());
}

bool Takes(const v1::Rule& rule, std::string_view series) {
  return fnmatch(std::string(PatternOf(rule)).c_str(), std::string(series).c_str(), 0) == 0;
}

absl::Status CheckRules(const v1::RuleSet& rules) {
  std::set<std::string> names;
  for (const v1::Rule& rule : rules.rules()) {
    if (rule.name().empty()) return absl::InvalidArgumentError("a rule has no name");
    if (!names.insert(rule.name()).second) {
      return absl::InvalidArgumentError(Cat("two rules are called \"", rule.name(), "\""));
    }
    const RuleKind* const kind = FindKind(rule);
    std::string kinds;
    for (const RuleKind& each : kKinds) kinds += Cat(kinds.empty() ? "" : ", ", each.name);
    const auto of_rule = [&](std::string_view what) {
      return absl::InvalidArgumentError(Cat("rule \"", rule.name(), "\": ", what));
    };
    if (kind == nullptr) return of_rule(Cat("it has no kind; the kinds are ", kinds));
    if (PatternOf(rule).empty()) return of_rule(Cat(kind->name, " needs series, a pattern such as \"loss\""));
    if (absl::Status status = CheckNoNan(rule, *kind); !status.ok()) return of_rule(StdView(status.message()));
    if (absl::Status status = kind->check(rule); !status.ok()) {
      return of_rule(std::string(status.message()));
    }
    if (absl::Status status = CheckCapture(rule.capture()); !status.ok()) return of_rule(StdView(status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RuleSet> ParseRules(std::string_view json) {
  v1::RuleSet rules;
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(json), &rules);
  if (!parsed.ok()) return absl::InvalidArgumentError(Cat("it is no set of rules: ", std::string(parsed.message())));
  if (absl::Status status = CheckRules(rules); !status.ok()) return status;
  return rules;
}

const v1::RuleSet& DefaultRules() {
  static const auto* const kRules = new v1::RuleSet(MakeDefaults());
  return *kRules;
}

}  // namespace msprobe::server
