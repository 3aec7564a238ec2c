#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/monitor/rules/rank_values.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

// What the ranks have of one series.
struct Replicas {
  RankValues values;
  uint32_t agreed = 0;  // steps at which all ranks had one value, another than the one before
  double before = 0;
};

class RankDiffersWatch final : public SeriesWatch {
 public:
  RankDiffersWatch(const v1::RankDiffers& rule, std::shared_ptr<Replicas> replicas, uint32_t rank)
      : tolerance_(Or(rule.tolerance(), 1e-6)),
        warm_up_(rule.replicas() ? 0 : Or(rule.warm_up(), uint32_t{3})),
        replicas_(std::move(replicas)),
        rank_(rank) {
    replicas_->values.Join(rank_);
  }
  ~RankDiffersWatch() override { replicas_->values.Leave(rank_); }
  RankDiffersWatch(const RankDiffersWatch&) = delete;
  RankDiffersWatch& operator=(const RankDiffersWatch&) = delete;

  std::optional<Offence> Look(uint32_t step, double value) override {
    std::optional<Offence> offence;
    for (RankValues::Step& each : replicas_->values.Add(rank_, step, value)) {
      std::optional<Offence> found = Judge(each);
      if (!offence.has_value()) offence = std::move(found);
    }
    return offence;
  }

 private:
  using Value = std::pair<uint32_t, double>;

  bool Agree(double a, double b) const {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b || std::abs(a - b) <= tolerance_ * std::max(std::abs(a), std::abs(b));
  }

  std::optional<Offence> Judge(RankValues::Step& step) {
    const double first = step.values.front().second;
    const bool agree = std::all_of(step.values.begin(), step.values.end(),
                                   [&](const Value& each) { return Agree(each.second, first); });
    if (agree) {
      if (!Agree(std::exchange(replicas_->before, first), first)) ++replicas_->agreed;
      return std::nullopt;
    }
    if (replicas_->agreed < warm_up_) {
      replicas_->agreed = 0;
      return std::nullopt;
    }
    return Name(step);
  }

  // Those that agree with most of the others are right; of halves, those with the least rank.
  Offence Name(RankValues::Step& step) const {
    std::sort(step.values.begin(), step.values.end());
    const auto supporters = [&](const Value& value) {
      return std::count_if(step.values.begin(), step.values.end(),
                           [&](const Value& each) { return Agree(each.second, value.second); });
    };
    Value most = step.values.front();
    auto support = supporters(most);
    for (const Value& value : step.values) {
      if (2 * support > static_cast<std::ptrdiff_t>(step.values.size())) break;
      if (Agree(value.second, most.second)) continue;
      if (const auto of_this = supporters(value); of_this > support)
        std::tie(most, support) = std::pair(value, of_this);
    }
    const auto odd = std::find_if(step.values.begin(), step.values.end(),
                                  [&](const Value& each) { return !Agree(each.second, most.second); });
    const auto others = static_cast<std::ptrdiff_t>(step.values.size()) - support - 1;
    return {.limit = most.second,
            .why = Cat(RankName(RankOfCode(odd->first)), " has ", Shown(odd->second), ", ",
                       support == 1 ? RankName(RankOfCode(most.first)) : Cat(support, " ranks"),
                       support == 1 ? " has " : " have ", Shown(most.second),
                       others > 0 ? Cat("; ", others, " more differ from these") : ""),
            .elsewhere = Offence::Elsewhere{.rank = odd->first, .step = step.step, .value = odd->second}};
  }

  const double tolerance_;
  const uint32_t warm_up_;
  const std::shared_ptr<Replicas> replicas_;
  const uint32_t rank_;
};

class RankDiffersRule final : public Rule {
 public:
  explicit RankDiffersRule(v1::RankDiffers rule) : rule_(std::move(rule)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    std::shared_ptr<Replicas>& replicas = series_[std::string(series.name)];
    if (replicas == nullptr) replicas = std::make_shared<Replicas>();
    return std::make_unique<RankDiffersWatch>(rule_, replicas, series.rank);
  }

 private:
  const v1::RankDiffers rule_;
  std::map<std::string, std::shared_ptr<Replicas>> series_;
};

}  // namespace

std::unique_ptr<Rule> MakeRankDiffers(const v1::Rule& rule) {
  return std::make_unique<RankDiffersRule>(rule.rank_differs());
}

}  // namespace msprobe::server
