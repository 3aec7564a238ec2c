#include <map>
#include <utility>

#include "server/format/cat.h"
#include "server/monitor/rules/robust_window.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kParameter = ".parameter:norm";
constexpr std::string_view kReduced = ".parameters_grad.reduced:norm";
constexpr std::string_view kClipped = ".parameters_grad.clipped:norm";
constexpr size_t kMostGradients = 32;

// The norms of one parameter and of its gradient. In a step those of the gradient come first.
struct Norms {
  RobustWindow gradients{kMostGradients};  // of earlier steps
  std::optional<uint32_t> step;            // of the gradient
  double gradient = 0;
  std::optional<double> parameter;
  uint32_t count = 0;  // of the parameter
};

class GradientWatch final : public SeriesWatch {
 public:
  explicit GradientWatch(std::shared_ptr<Norms> norms) : norms_(std::move(norms)) {}
  std::optional<Offence> Look(uint32_t step, double value) override {
    if (norms_->step.has_value() && norms_->step != step) norms_->gradients.Add(norms_->gradient);
    norms_->step = step;
    norms_->gradient = value;  // behind clipping, where there is any
    return std::nullopt;
  }

 private:
  const std::shared_ptr<Norms> norms_;
};

class ParameterWatch final : public SeriesWatch {
 public:
  ParameterWatch(const v1::WeightPoisoned& rule, std::shared_ptr<Norms> norms)
      : factor_(Or(rule.factor(), 10.0)), warm_up_(Or(rule.warm_up(), uint32_t{8})), norms_(std::move(norms)) {}

  std::optional<Offence> Look(uint32_t step, double value) override {
    const std::optional<double> before = std::exchange(norms_->parameter, value);
    const bool judges_growth = ++norms_->count > warm_up_;
    if (!before.has_value() || !std::isfinite(*before)) return std::nullopt;
    if (norms_->step != step || !std::isfinite(norms_->gradient)) return std::nullopt;
    const bool grew = judges_growth && *before > 0 && value > factor_ * *before && GradientIsUsual();
    if (std::isfinite(value) && !grew) return std::nullopt;
    return Offence{.limit = std::isfinite(value) ? factor_ * *before : 0,
                   .why = Cat("the optimizer's step made its norm ", Shown(value), " from ", Shown(*before),
                              ", while its gradient's norm was ", Shown(norms_->gradient))};
  }

 private:
  bool GradientIsUsual() const {
    return norms_->gradients.count() > 0 && norms_->gradient <= factor_ * norms_->gradients.Median();
  }

  const double factor_;
  const uint32_t warm_up_;
  const std::shared_ptr<Norms> norms_;
};

class WeightPoisonedRule final : public Rule {
 public:
  explicit WeightPoisonedRule(v1::WeightPoisoned rule) : rule_(std::move(rule)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    for (std::string_view end : {kParameter, kReduced, kClipped}) {
      if (!series.name.ends_with(end)) continue;
      const std::string_view parameter = series.name.substr(0, series.name.size() - end.size());
      std::weak_ptr<Norms>& known = norms_[{series.session, std::string(parameter)}];
      std::shared_ptr<Norms> norms = known.lock();
      if (norms == nullptr) known = norms = std::make_shared<Norms>();
      if (end == kParameter) return std::make_unique<ParameterWatch>(rule_, std::move(norms));
      return std::make_unique<GradientWatch>(std::move(norms));
    }
    return nullptr;
  }

 private:
  const v1::WeightPoisoned rule_;
  std::map<std::pair<std::string, std::string>, std::weak_ptr<Norms>> norms_;
};

}  // namespace

std::unique_ptr<Rule> MakeWeightPoisoned(const v1::Rule& rule) {
  return std::make_unique<WeightPoisonedRule>(rule.weight_poisoned());
}

}  // namespace msprobe::server
