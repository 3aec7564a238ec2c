#include <algorithm>
#include <limits>

#include "server/format/cat.h"
#include "server/monitor/rules/robust_window.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class DriftWatch final : public SeriesWatch {
 public:
  explicit DriftWatch(const v1::Drift& rule)
      : threshold_(Or(rule.threshold(), 6.0)),
        floor_(Or(rule.floor(), 0.05)),
        warm_up_(Or(rule.warm_up(), uint32_t{64})),
        size_(Or(rule.window(), uint32_t{64})),
        first_(warm_up_),
        latest_(size_) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!std::isfinite(value)) return std::nullopt;
    if (first_.count() < warm_up_) {
      first_.Add(value);
      if (first_.count() == warm_up_) {
        level_ = first_.Median();
        deviation_ =
            std::max({first_.Deviation(level_), floor_ * std::abs(level_), std::numeric_limits<double>::min()});
      }
      return std::nullopt;
    }
    latest_.Add(value);
    if (latest_.count() < size_) return std::nullopt;
    const double now = latest_.Median(), distance = std::abs(now - level_) / deviation_;
    if (distance <= threshold_) return std::nullopt;
    return Offence{
        .limit = threshold_,
        .why = Cat("the median of its last ", size_, " points is ", Shown(now), ", ", Shown(distance), " deviations ",
                   now > level_ ? "above" : "below", " that of its first ", warm_up_, ", ", Shown(level_))};
  }

 private:
  const double threshold_;
  const double floor_;
  const uint32_t warm_up_;
  const uint32_t size_;
  RobustWindow first_;
  RobustWindow latest_;
  double level_ = 0, deviation_ = 1;  // of first_, when it is full
};

}  // namespace

std::unique_ptr<Rule> MakeDrift(const v1::Rule& rule) {
  return std::make_unique<RuleOf<DriftWatch, v1::Drift>>(rule.drift());
}

}  // namespace msprobe::server
