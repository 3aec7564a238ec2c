#include "server/monitor/rules/rule_kinds.h"

#include <fnmatch.h>

#include <array>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
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
  return value >= 0 ? absl::OkStatus() : Wrong(field, value, "at least 0; 0 is the default");
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
  const absl::Status status = NotNegative("update_ratio.least", rule.update_ratio().least());
  return status.ok() ? NotNegative("update_ratio.greatest", rule.update_ratio().greatest()) : status;
}

absl::Status CheckDeadUnits(const v1::Rule& rule) {
  const double share = rule.dead_units().share();
  return share >= 0 && share < 1 ? absl::OkStatus() : Wrong("dead_units.share", share, "from 0 to below 1");
}

absl::Status CheckSignDrop(const v1::Rule& rule) {
  const v1::SignDrop& signs = rule.sign_drop();
  if (signs.golden().empty()) {
    return absl::InvalidArgumentError("sign_drop.golden is needed: the run whose signs are right");
  }
  for (const auto& [field, share] : {std::pair("sign_drop.least", signs.least()), {"sign_drop.drop", signs.drop()}}) {
    if (!(share >= 0 && share <= 1)) return Wrong(field, share, "from 0 to 1; 0 is the default");
  }
  return absl::OkStatus();
}

constexpr std::string_view kGradients = "*.parameters_grad.*:norm";

const std::array kKinds = std::to_array<RuleKind>({
    {"not_finite", v1::Rule::kNotFinite, "*", Fine, MakeNotFinite},
    {"threshold", v1::Rule::kThreshold, "", CheckThreshold, MakeThreshold},
    {"z_score", v1::Rule::kZScore, "*loss*", CheckZScore, MakeZScore},
    {"not_decreasing", v1::Rule::kNotDecreasing, "loss", Fine, MakeNotDecreasing},
    {"overfit", v1::Rule::kOverfit, "*", Fine, MakeOverfit},
    {"change_point", v1::Rule::kChangePoint, "", CheckChangePoint, MakeChangePoint},
    {"exploding", v1::Rule::kExploding, kGradients, CheckExploding, MakeExploding},
    {"vanishing", v1::Rule::kVanishing, kGradients, Fine, MakeVanishing},
    {"all_zero", v1::Rule::kAllZero, kGradients, Fine, MakeAllZero},
    {"unchanged", v1::Rule::kUnchanged, "", Fine, MakeUnchanged},
    {"update_ratio", v1::Rule::kUpdateRatio, "update_ratio/*", CheckUpdateRatio, MakeUpdateRatio},
    {"dead_units", v1::Rule::kDeadUnits, "*relu*.output.*:zero_share", CheckDeadUnits, MakeDeadUnits},
    {"sign_drop", v1::Rule::kSignDrop, "*:sign_similarity", CheckSignDrop, MakeSignDrop},
    {"ill_response", v1::Rule::kIllResponse, "response/*", CheckIllResponse, MakeIllResponse},
});

const RuleKind* FindKind(const v1::Rule& rule) {
  for (const RuleKind& kind : kKinds) {
    if (kind.field == rule.kind_case()) return &kind;
  }
  return nullptr;
}

v1::RuleSet MakeDefaults() {
  v1::RuleSet rules;
  v1::Rule* rule = rules.add_rules();
  rule->set_name("not-finite");
  rule->mutable_not_finite();
  rule = rules.add_rules();
  rule->set_name("loss-jumps");
  rule->mutable_z_score()->set_patience(3);
  rule->mutable_z_score()->set_above_only(true);
  rule = rules.add_rules();
  rule->set_name("gradient-explodes");
  rule->set_series("*grad_norm*");
  rule->mutable_exploding();
  rule = rules.add_rules();
  rule->set_name("overfit");
  rule->mutable_overfit();
  rule = rules.add_rules();
  rule->set_name("ill-response");
  rule->mutable_ill_response();
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
