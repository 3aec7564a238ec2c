#include "agent/core/responses/response_detector.h"
#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

core::ResponseRules RulesOf(const v1::IllResponse& given) {
  core::ResponseRules rules;
  if (given.has_window()) rules.window = given.window();
  if (given.has_stride()) rules.stride = given.stride();
  if (given.has_rare_top1()) rules.rare_top1 = given.rare_top1();
  if (given.has_rare_mass()) rules.rare_mass = given.rare_mass();
  if (given.has_garbled_top1()) rules.garbled_top1 = given.garbled_top1();
  if (given.has_garbled_share()) rules.garbled_share = given.garbled_share();
  if (given.has_garbled_windows()) rules.garbled_windows = given.garbled_windows();
  if (given.has_repeat_gram()) rules.repeat_gram = given.repeat_gram();
  if (given.has_repeat_distinct()) rules.repeat_distinct = given.repeat_distinct();
  if (given.has_repeat_distinct_top1()) rules.repeat_distinct_top1 = given.repeat_distinct_top1();
  if (given.has_repeat_correlation()) rules.repeat_correlation = given.repeat_correlation();
  if (given.has_repeat_correlation_top1()) rules.repeat_correlation_top1 = given.repeat_correlation_top1();
  if (given.has_repeat_single_windows()) rules.repeat_single_windows = given.repeat_single_windows();
  if (given.has_repeat_both_windows()) rules.repeat_both_windows = given.repeat_both_windows();
  return rules;
}

class IllResponseWatch final : public ReplyWatch {
 public:
  explicit IllResponseWatch(const core::ResponseRules& rules) : detector_(rules) {}
  std::optional<Found> Look(const core::SampledToken* token) override {
    has_logprobs_ = has_logprobs_ || (token != nullptr && token->has_logprobs);
    auto found = token != nullptr ? detector_.Add(*token) : detector_.Finish();
    if (!found.has_value()) return std::nullopt;
    const std::string_view unjudged = has_logprobs_ ? "" : "; it has no log-probabilities, so the rest is not judged";
    return Found{.fault = found->fault,
                 .value = found->value,
                 .offence = {.limit = found->limit, .why = Cat(found->why, unjudged)}};
  }

 private:
  core::ResponseDetector detector_;
  bool has_logprobs_ = false;
};

class IllResponseRule final : public Rule {
 public:
  explicit IllResponseRule(const v1::IllResponse& given) : rules_(RulesOf(given)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries&) override { return nullptr; }
  std::unique_ptr<ReplyWatch> WatchReply() override { return std::make_unique<IllResponseWatch>(rules_); }

 private:
  const core::ResponseRules rules_;
};

}  // namespace

absl::Status CheckIllResponse(const v1::Rule& rule) {
  const std::string wrong = core::WrongIn(RulesOf(rule.ill_response()));
  return wrong.empty() ? absl::OkStatus() : absl::InvalidArgumentError(Cat("ill_response.", wrong));
}

std::unique_ptr<Rule> MakeIllResponse(const v1::Rule& rule) {
  return std::make_unique<IllResponseRule>(rule.ill_response());
}

}  // namespace msprobe::server
