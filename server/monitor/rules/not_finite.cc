#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class NotFiniteWatch final : public SeriesWatch {
 public:
  explicit NotFiniteWatch(const v1::NotFinite&) {}
  std::optional<Offence> Look(uint32_t, double value) override {
    if (std::isfinite(value)) return std::nullopt;
    return Offence{.limit = 0, .why = Cat("it is ", Shown(value))};
  }
};

}  // namespace

std::unique_ptr<Rule> MakeNotFinite(const v1::Rule& rule) {
  return std::make_unique<RuleOf<NotFiniteWatch, v1::NotFinite>>(rule.not_finite());
}

}  // namespace msprobe::server
