#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class NotFiniteWatch final : public SeriesWatch {
 public:
  explicit NotFiniteWatch(uint32_t patience) : patience_(patience) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    const bool offends = !std::isfinite(value);
    const bool is_firm = patience_.Count(offends);
    if (!offends) return std::nullopt;
    return Offence{.limit = 0, .why = Cat("it is ", Shown(value)), .is_doubtful = !is_firm};
  }

 private:
  Patience patience_;
};

bool IsGradient(std::string_view series) {
  return series.find("grad") != std::string_view::npos || series.find(".backward.") != std::string_view::npos;
}

class NotFiniteRule final : public Rule {
 public:
  explicit NotFiniteRule(const v1::NotFinite& rule) : gradient_patience_(Or(rule.gradient_patience(), uint32_t{8})) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) override {
    return std::make_unique<NotFiniteWatch>(IsGradient(series.name) ? gradient_patience_ : 1);
  }

 private:
  const uint32_t gradient_patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeNotFinite(const v1::Rule& rule) { return std::make_unique<NotFiniteRule>(rule.not_finite()); }

}  // namespace msprobe::server
