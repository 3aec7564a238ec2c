#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class ThresholdWatch final : public SeriesWatch {
 public:
  explicit ThresholdWatch(const v1::Threshold& rule) : rule_(rule) {}
  std::optional<Offence> Look(uint32_t, double value) override {
    if (rule_.has_above() && value > rule_.above()) {
      return Offence{.limit = rule_.above(), .why = Cat("it is ", Shown(value), ", above ", Shown(rule_.above()))};
    }
    if (rule_.has_below() && value < rule_.below()) {
      return Offence{.limit = rule_.below(), .why = Cat("it is ", Shown(value), ", below ", Shown(rule_.below()))};
    }
    return std::nullopt;
  }

 private:
  const v1::Threshold rule_;
};

}  // namespace

std::unique_ptr<Rule> MakeThreshold(const v1::Rule& rule) {
  return std::make_unique<RuleOf<ThresholdWatch, v1::Threshold>>(rule.threshold());
}

}  // namespace msprobe::server
