#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class UpdateRatioWatch final : public SeriesWatch {
 public:
  explicit UpdateRatioWatch(const v1::UpdateRatio& rule)
      : least_(Or(rule.least(), 1e-7)),
        greatest_(Or(rule.greatest(), 0.1)),
        patience_(Or(rule.patience(), uint32_t{3})) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!patience_.Count(value < least_ || value > greatest_)) return std::nullopt;
    return Offence{.limit = value < least_ ? least_ : greatest_,
                   .why = Cat("it is ", Shown(value), ", outside of ", Shown(least_), " to ", Shown(greatest_), " for ",
                              patience_.needed(), " points or more")};
  }

 private:
  const double least_;
  const double greatest_;
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeUpdateRatio(const v1::Rule& rule) {
  return std::make_unique<RuleOf<UpdateRatioWatch, v1::UpdateRatio>>(rule.update_ratio());
}

}  // namespace msprobe::server
