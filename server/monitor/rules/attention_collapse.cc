#include "server/monitor/rules/limit_watch.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class AttentionCollapseRule final : public Rule {
 public:
  explicit AttentionCollapseRule(v1::AttentionCollapse rule) : rule_(std::move(rule)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    const uint32_t patience = Or(rule_.patience(), uint32_t{3});
    if (series.name.find("attention_entropy") != std::string_view::npos) {
      return std::make_unique<LimitWatch>("the entropy of attention", LimitWatch::Side::kBelow,
                                          Or(rule_.entropy(), 0.01), patience);
    }
    if (series.name.find("attention_logit") != std::string_view::npos) {
      return std::make_unique<LimitWatch>("the logit of attention", LimitWatch::Side::kAbove, Or(rule_.logit(), 1e4),
                                          patience);
    }
    return nullptr;
  }

 private:
  const v1::AttentionCollapse rule_;
};

}  // namespace

std::unique_ptr<Rule> MakeAttentionCollapse(const v1::Rule& rule) {
  return std::make_unique<AttentionCollapseRule>(rule.attention_collapse());
}

}  // namespace msprobe::server
