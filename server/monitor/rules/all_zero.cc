#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class AllZeroWatch final : public SeriesWatch {
 public:
  explicit AllZeroWatch(const v1::AllZero& rule) : patience_(Or(rule.patience(), uint32_t{3})) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    if (!patience_.Count(value == 0)) return std::nullopt;
    return Offence{.limit = 0, .why = Cat("it is 0 for ", patience_.needed(), " points or more")};
  }

 private:
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeAllZero(const v1::Rule& rule) {
  return std::make_unique<RuleOf<AllZeroWatch, v1::AllZero>>(rule.all_zero());
}

}  // namespace msprobe::server
