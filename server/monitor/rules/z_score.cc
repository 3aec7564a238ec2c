#include <algorithm>
#include <limits>

#include "server/format/cat.h"
#include "server/monitor/rules/robust_window.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class ZScoreWatch final : public SeriesWatch {
 public:
  explicit ZScoreWatch(const v1::ZScore& rule)
      : threshold_(Or(rule.threshold(), 8.0)),
        floor_(Or(rule.floor(), 0.01)),
        warm_up_(Or(rule.warm_up(), uint32_t{32})),
        above_only_(rule.above_only()),
        // A window that never holds the warm-up would never judge.
        window_(std::max(Or(rule.window(), uint32_t{64}), warm_up_)),
        patience_(Or(rule.patience(), uint32_t{1})) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!std::isfinite(value)) return std::nullopt;
    std::optional<Offence> offence;
    if (window_.count() >= warm_up_) {
      const double median = window_.Median();
      const double deviation = std::max({window_.Deviation(median), floor_ * std::abs(median), kLeast});
      const double score = (value - median) / deviation;
      const bool offends = above_only_ ? score > threshold_ : std::abs(score) > threshold_;
      if (patience_.Count(offends)) {
        offence = Offence{.limit = threshold_,
                          .why = Cat("it is ", Shown(value), ", ", Shown(std::abs(score)), " deviations ",
                                     score > 0 ? "above" : "below", " the median ", Shown(median), " of the ",
                                     window_.count(), " points before")};
      }
    }
    window_.Add(value);
    return offence;
  }

 private:
  static constexpr double kLeast = std::numeric_limits<double>::min();
  const double threshold_;
  const double floor_;
  const uint32_t warm_up_;
  const bool above_only_;
  RobustWindow window_;
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeZScore(const v1::Rule& rule) {
  return std::make_unique<RuleOf<ZScoreWatch, v1::ZScore>>(rule.z_score());
}

}  // namespace msprobe::server
