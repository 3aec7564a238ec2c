#include "absl/strings/ascii.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

struct Bounds {
  double lower = 0, upper = 0;
};

// The slope of a sigmoid at the output x is x (1 - x), that of tanh (1 + x) (1 - x): (x - lower) (upper - x). Its mean
// over a tensor needs no more than the tensor's mean and variance.
class SaturatedWatch final : public TensorWatch {
 public:
  SaturatedWatch(const v1::Saturated& rule, Bounds bounds)
      : share_(Or(rule.share(), 0.02)), patience_(Or(rule.patience(), uint32_t{3})), bounds_(bounds) {}

  std::optional<Found> Look(const StepTable& table, const Row& tensor) override {
    const auto mean = StatisticOf(table, tensor, Statistic::kMean);
    const auto variance = StatisticOf(table, tensor, Statistic::kVariance);
    if (!mean.has_value() || !variance.has_value()) return std::nullopt;
    const double slope = (*mean - bounds_.lower) * (bounds_.upper - *mean) - *variance;
    const double half = (bounds_.upper - bounds_.lower) / 2, share = std::max(0.0, slope / (half * half));
    if (!patience_.Count(share < share_)) return std::nullopt;
    return Found{.value = share,
                 .offence = {.limit = share_,
                             .why = Cat("its mean slope is ", Shown(share), " of the greatest one, as its units stand ",
                                        "at ", Shown(bounds_.lower), " or ", Shown(bounds_.upper), "; below ",
                                        Shown(share_), " for ", patience_.needed(), " points or more")}};
  }

 private:
  const double share_;
  Patience patience_;
  const Bounds bounds_;
};

class SaturatedRule final : public Rule {
 public:
  explicit SaturatedRule(v1::Saturated rule) : rule_(std::move(rule)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries&) override { return nullptr; }
  std::unique_ptr<TensorWatch> WatchTensor(std::string_view name) override {
    if (rule_.has_lower()) {
      return std::make_unique<SaturatedWatch>(rule_, Bounds{.lower = rule_.lower(), .upper = rule_.upper()});
    }
    const std::string lower = absl::AsciiStrToLower(AbslView(name));
    for (std::string_view other : {"logsigmoid", "hardsigmoid", "hardtanh", "tanhshrink", ".backward."}) {
      if (lower.find(other) != std::string::npos) return nullptr;
    }
    if (lower.find("sigmoid") != std::string::npos) return std::make_unique<SaturatedWatch>(rule_, Bounds{0, 1});
    if (lower.find("tanh") != std::string::npos) return std::make_unique<SaturatedWatch>(rule_, Bounds{-1, 1});
    return nullptr;
  }

 private:
  const v1::Saturated rule_;
};

}  // namespace

std::unique_ptr<Rule> MakeSaturated(const v1::Rule& rule) { return std::make_unique<SaturatedRule>(rule.saturated()); }

}  // namespace msprobe::server
