#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class VanishingWatch final : public SeriesWatch {
 public:
  explicit VanishingWatch(const v1::Vanishing& rule)
      : limit_(Or(rule.limit(), 1e-8)), patience_(Or(rule.patience(), uint32_t{3})) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!patience_.Count(value != 0 && std::abs(value) < limit_)) return std::nullopt;
    return Offence{
        .limit = limit_,
        .why = Cat("it is ", Shown(value), ", below ", Shown(limit_), " for ", patience_.needed(), " points or more")};
  }

 private:
  const double limit_;
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeVanishing(const v1::Rule& rule) {
  return std::make_unique<RuleOf<VanishingWatch, v1::Vanishing>>(rule.vanishing());
}

}  // namespace msprobe::server
