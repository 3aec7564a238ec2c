#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/monitor/rules/rank_values.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

// What the ranks have of one series.
struct Pace {
  RankValues times;
  std::map<uint32_t, uint32_t> slow;    // steps in a row that each rank was slow
  std::map<uint32_t, uint32_t> latest;  // step of each rank
  uint32_t newest = 0;
};

template <typename Number>
Number MedianOf(std::vector<Number> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class StragglerWatch final : public SeriesWatch {
 public:
  StragglerWatch(const v1::Straggler& rule, std::shared_ptr<Pace> pace, uint32_t rank)
      : factor_(Or(rule.factor(), 1.5)),
        patience_(Or(rule.patience(), uint32_t{3})),
        steps_(Or(rule.steps(), uint32_t{20})),
        pace_(std::move(pace)),
        rank_(rank) {
    pace_->times.Join(rank_);
  }
  ~StragglerWatch() override {
    pace_->times.Leave(rank_);
    pace_->latest.erase(rank_);
    pace_->slow.erase(rank_);
  }
  StragglerWatch(const StragglerWatch&) = delete;
  StragglerWatch& operator=(const StragglerWatch&) = delete;

  std::optional<Offence> Look(uint32_t step, double value) override {
    std::optional<Offence> offence = Behind(step);
    for (const RankValues::Step& each : pace_->times.Add(rank_, step, value)) {
      std::optional<Offence> found = Slow(each);
      if (!offence.has_value()) offence = std::move(found);
    }
    return offence;
  }

 private:
  std::optional<Offence> Slow(const RankValues::Step& step) {
    std::vector<double> times;
    for (const auto& [rank, time] : step.values) times.push_back(time);
    const double median = MedianOf(std::move(times));
    std::optional<Offence> offence;
    for (const auto& [rank, time] : step.values) {
      uint32_t& slow = pace_->slow[rank];
      slow = time > factor_ * median ? slow + 1 : 0;
      if (slow < patience_ || (offence.has_value() && offence->elsewhere->value >= time)) continue;
      offence = Offence{.limit = factor_ * median,
                        .why = Cat(RankName(RankOfCode(rank)), " takes ", Shown(time), ", the median of ",
                                   step.values.size(), " ranks is ", Shown(median), "; for ", slow, " steps in a row"),
                        .elsewhere = Offence::Elsewhere{.rank = rank, .step = step.step, .value = time}};
    }
    return offence;
  }

  // Looked at when a rank goes ahead of all others.
  std::optional<Offence> Behind(uint32_t step) {
    pace_->latest[rank_] = step;
    if (step <= pace_->newest) return std::nullopt;
    pace_->newest = step;
    std::vector<uint32_t> latest;
    for (const auto& [rank, last] : pace_->latest) latest.push_back(last);
    const uint32_t median = MedianOf(std::move(latest));
    const auto last = std::min_element(pace_->latest.begin(), pace_->latest.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (median <= last->second || median - last->second <= steps_) return std::nullopt;
    const uint32_t behind = median - last->second;
    return Offence{.limit = static_cast<double>(steps_),
                   .why = Cat(RankName(RankOfCode(last->first)), " is at step ", last->second, ", ", behind,
                              " behind the median of ", pace_->latest.size(), " ranks"),
                   .elsewhere = Offence::Elsewhere{
                       .rank = last->first, .step = last->second, .value = static_cast<double>(behind)}};
  }

  const double factor_;
  const uint32_t patience_;
  const uint32_t steps_;
  const std::shared_ptr<Pace> pace_;
  const uint32_t rank_;
};

class StragglerRule final : public Rule {
 public:
  explicit StragglerRule(v1::Straggler rule) : rule_(std::move(rule)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    std::shared_ptr<Pace>& pace = series_[std::string(series.name)];
    if (pace == nullptr) pace = std::make_shared<Pace>();
    return std::make_unique<StragglerWatch>(rule_, pace, series.rank);
  }

 private:
  const v1::Straggler rule_;
  std::map<std::string, std::shared_ptr<Pace>> series_;
};

}  // namespace

std::unique_ptr<Rule> MakeStraggler(const v1::Rule& rule) { return std::make_unique<StragglerRule>(rule.straggler()); }

}  // namespace msprobe::server
