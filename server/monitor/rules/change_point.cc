#include <algorithm>
#include <limits>

#include "server/format/cat.h"
#include "server/monitor/rules/robust_window.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class ChangePointWatch final : public SeriesWatch {
 public:
  explicit ChangePointWatch(const v1::ChangePoint& rule)
      : threshold_(Or(rule.threshold(), 12.0)),
        drift_(Or(rule.drift(), 1.0)),
        warm_up_(Or(rule.warm_up(), uint32_t{32})),
        window_(warm_up_) {}

  std::optional<Offence> Look(uint32_t step, double value) override {
    if (!std::isfinite(value)) return std::nullopt;
    if (window_.count() < warm_up_) {
      window_.Add(value);
      if (window_.count() == warm_up_) {
        level_ = window_.Median();
        deviation_ = std::max({window_.Deviation(level_), 0.001 * std::abs(level_), kLeast});
      }
      return std::nullopt;
    }
    const double distance = (value - level_) / deviation_;
    if (above_ == 0) above_since_ = step;
    if (below_ == 0) below_since_ = step;
    above_ = std::max(0.0, above_ + distance - drift_);
    below_ = std::max(0.0, below_ - distance - drift_);
    const bool up = above_ > threshold_;
    if (!up && below_ <= threshold_) return std::nullopt;
    return Offence{
        .limit = threshold_,
        .why = Cat("it left the level ", Shown(level_), " ", up ? "upwards" : "downwards", " at step ",
                   up ? above_since_ : below_since_, ", by a sum of ", Shown(up ? above_ : below_), " deviations")};
  }

 private:
  static constexpr double kLeast = std::numeric_limits<double>::min();
  const double threshold_;
  const double drift_;
  const uint32_t warm_up_;
  RobustWindow window_;
  double level_ = 0, deviation_ = 1;
  double above_ = 0, below_ = 0;
  uint32_t above_since_ = 0, below_since_ = 0;
};

}  // namespace

std::unique_ptr<Rule> MakeChangePoint(const v1::Rule& rule) {
  return std::make_unique<RuleOf<ChangePointWatch, v1::ChangePoint>>(rule.change_point());
}

}  // namespace msprobe::server
