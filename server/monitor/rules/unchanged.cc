#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class UnchangedWatch final : public SeriesWatch {
 public:
  explicit UnchangedWatch(const v1::Unchanged& rule) : patience_(Or(rule.patience(), uint32_t{3})) {}

  std::optional<Offence> Look(uint32_t, double value) override {
    const std::optional<double> before = std::exchange(before_, value);
    if (!patience_.Count(before == value)) return std::nullopt;
    return Offence{.limit = value,
                   .why = Cat("it stays ", Shown(value), " for ", patience_.needed(), " points or more")};
  }

 private:
  std::optional<double> before_;
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeUnchanged(const v1::Rule& rule) {
  return std::make_unique<RuleOf<UnchangedWatch, v1::Unchanged>>(rule.unchanged());
}

}  // namespace msprobe::server
