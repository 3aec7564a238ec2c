#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

// An exponential mean of a few points.
class Smoothed {
 public:
  explicit Smoothed(double weight) : weight_(weight) {}
  void Add(double value) {
    if (!std::isfinite(value)) return;
    mean_ = count_++ == 0 ? value : mean_ + weight_ * (value - mean_);
  }
  double mean() const { return mean_; }
  uint64_t count() const { return count_; }

 private:
  const double weight_;
  double mean_ = 0;
  uint64_t count_ = 0;
};

struct Losses {
  Smoothed training{0.1};
  Smoothed validation{0.5};
  double training_then = 0;  // when validation was least
  double least = std::numeric_limits<double>::infinity();
  uint32_t least_step = 0;
};

class TrainingWatch final : public SeriesWatch {
 public:
  explicit TrainingWatch(std::shared_ptr<Losses> losses) : losses_(std::move(losses)) {}
  std::optional<Offence> Look(uint32_t, double value) override {
    losses_->training.Add(value);
    return std::nullopt;
  }

 private:
  const std::shared_ptr<Losses> losses_;
};

class ValidationWatch final : public SeriesWatch {
 public:
  ValidationWatch(const v1::Overfit& rule, std::shared_ptr<Losses> losses)
      : margin_(Or(rule.margin(), 0.1)), patience_(Or(rule.patience(), uint32_t{3})), losses_(std::move(losses)) {}

  std::optional<Offence> Look(uint32_t step, double value) override {
    Losses& losses = *losses_;
    losses.validation.Add(value);
    const double validation = losses.validation.mean(), training = losses.training.mean();
    if (losses.training.count() == 0 || losses.validation.count() == 0) return std::nullopt;
    if (validation < losses.least) {
      losses.least = validation;
      losses.least_step = step;
      losses.training_then = training;
    }
    const bool rose = validation > losses.least + margin_ * std::abs(losses.least);
    const bool fell = training < losses.training_then;
    if (!patience_.Count(rose && fell)) return std::nullopt;
    return Offence{.limit = losses.least * (1 + margin_),
                   .why = Cat("smoothed it is ", Shown(validation), ", it was ", Shown(losses.least), " at step ",
                              losses.least_step, "; the training loss fell meanwhile from ",
                              Shown(losses.training_then), " to ", Shown(training))};
  }

 private:
  const double margin_;
  Patience patience_;
  const std::shared_ptr<Losses> losses_;
};

class OverfitRule final : public Rule {
 public:
  explicit OverfitRule(v1::Overfit rule) : rule_(std::move(rule)) {
    if (rule_.training().empty()) rule_.set_training("train/loss");
    if (rule_.validation().empty()) rule_.set_validation("val/loss");
  }
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    if (series.name != rule_.training() && series.name != rule_.validation()) return nullptr;
    std::shared_ptr<Losses> losses = sessions_[series.session].lock();
    if (losses == nullptr) sessions_[series.session] = losses = std::make_shared<Losses>();
    if (series.name == rule_.training()) return std::make_unique<TrainingWatch>(std::move(losses));
    return std::make_unique<ValidationWatch>(rule_, std::move(losses));
  }

 private:
  v1::Overfit rule_;
  std::map<std::string, std::weak_ptr<Losses>> sessions_;
};

}  // namespace

std::unique_ptr<Rule> MakeOverfit(const v1::Rule& rule) { return std::make_unique<OverfitRule>(rule.overfit()); }

}  // namespace msprobe::server
