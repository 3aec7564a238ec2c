#include <algorithm>
#include <limits>

#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class NotDecreasingWatch final : public SeriesWatch {
 public:
  explicit NotDecreasingWatch(const v1::NotDecreasing& rule)
      : patience_(Or(rule.patience(), uint32_t{200})), margin_(rule.margin()) {}

  std::optional<Offence> Look(uint32_t step, double value) override {
    if (value < least_ - margin_ * std::abs(least_) || !std::isfinite(least_)) {
      if (std::isfinite(value)) {
        least_ = value;
        least_step_ = step;
        since_ = 0;
      }
      return std::nullopt;
    }
    if (++since_ < patience_) return std::nullopt;
    return Offence{
        .limit = least_,
        .why = Cat("it has not fallen below ", Shown(least_), " of step ", least_step_, " for ", since_, " points")};
  }

 private:
  const uint32_t patience_;
  const double margin_;
  double least_ = std::numeric_limits<double>::infinity();
  uint32_t least_step_ = 0;
  uint32_t since_ = 0;
};

}  // namespace

std::unique_ptr<Rule> MakeNotDecreasing(const v1::Rule& rule) {
  return std::make_unique<RuleOf<NotDecreasingWatch, v1::NotDecreasing>>(rule.not_decreasing());
}

}  // namespace msprobe::server
