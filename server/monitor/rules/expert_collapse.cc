#include "server/monitor/rules/limit_watch.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class ExpertCollapseRule final : public Rule {
 public:
  explicit ExpertCollapseRule(v1::ExpertCollapse rule) : rule_(std::move(rule)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    const auto is_of = [&](std::string_view part) { return series.name.find(part) != std::string_view::npos; };
    const uint32_t patience = Or(rule_.patience(), uint32_t{3});
    if (is_of("router_entropy")) {
      return std::make_unique<LimitWatch>("the router's entropy", LimitWatch::Side::kBelow, Or(rule_.entropy(), 0.05),
                                          patience);
    }
    if (is_of("expert_load")) {
      return std::make_unique<LimitWatch>("the busiest expert's share of the tokens", LimitWatch::Side::kAbove,
                                          Or(rule_.load(), 0.95), patience);
    }
    if (is_of("dead_experts") && rule_.has_dead()) {
      return std::make_unique<LimitWatch>("the number of experts without a token", LimitWatch::Side::kAbove,
                                          static_cast<double>(rule_.dead()), patience);
    }
    return nullptr;
  }

 private:
  const v1::ExpertCollapse rule_;
};

}  // namespace

std::unique_ptr<Rule> MakeExpertCollapse(const v1::Rule& rule) {
  return std::make_unique<ExpertCollapseRule>(rule.expert_collapse());
}

}  // namespace msprobe::server
