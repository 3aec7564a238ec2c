#include <algorithm>

#include "server/format/cat.h"
#include "server/monitor/rules/robust_window.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class ExplodingWatch final : public SeriesWatch {
 public:
  explicit ExplodingWatch(const v1::Exploding& rule)
      : limit_(Or(rule.limit(), 1e6)),
        factor_(Or(rule.factor(), 100.0)),
        warm_up_(Or(rule.warm_up(), uint32_t{8})),
        window_(std::max(Or(rule.window(), uint32_t{32}), warm_up_)) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!std::isfinite(value)) return std::nullopt;  // an offence of not_finite
    std::optional<Offence> offence;
    const double median = window_.count() >= warm_up_ ? window_.Median() : 0;
    if (value > limit_) {
      offence = Offence{.limit = limit_, .why = Cat("it is ", Shown(value), ", above ", Shown(limit_))};
    } else if (median > 0 && value > factor_ * median) {
      offence = Offence{.limit = factor_ * median,
                        .why = Cat("it is ", Shown(value), ", ", Shown(value / median), " times the median ",
                                   Shown(median), " of the ", window_.count(), " points before")};
    }
    window_.Add(value);
    return offence;
  }

 private:
  const double limit_;
  const double factor_;
  const uint32_t warm_up_;
  RobustWindow window_;
};

}  // namespace

std::unique_ptr<Rule> MakeExploding(const v1::Rule& rule) {
  return std::make_unique<RuleOf<ExplodingWatch, v1::Exploding>>(rule.exploding());
}

}  // namespace msprobe::server
