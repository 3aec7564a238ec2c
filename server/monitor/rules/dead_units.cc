#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class DeadUnitsWatch final : public SeriesWatch {
 public:
  explicit DeadUnitsWatch(const v1::DeadUnits& rule)
      : share_(Or(rule.share(), 0.98)), patience_(Or(rule.patience(), uint32_t{3})) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!patience_.Count(value > share_)) return std::nullopt;
    return Offence{.limit = share_,
                   .why = Cat("its share of zeros is ", Shown(value), ", above ", Shown(share_), " for ",
                              patience_.needed(), " points or more")};
  }

 private:
  const double share_;
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeDeadUnits(const v1::Rule& rule) {
  return std::make_unique<RuleOf<DeadUnitsWatch, v1::DeadUnits>>(rule.dead_units());
}

}  // namespace msprobe::server
