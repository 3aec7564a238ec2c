#include "server/analysis/check/dtype_standard.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class OverflowSoonWatch final : public TensorWatch {
 public:
  explicit OverflowSoonWatch(const v1::OverflowSoon& rule)
      : margin_(Or(rule.margin(), 8.0)), patience_(Or(rule.patience(), uint32_t{1})) {}

  std::optional<Found> Look(const StepTable& table, const Row& tensor) override {
    const std::string_view dtype = table.text(tensor.dtype);
    const DTypeStandard* const standard = StandardOf(DTypeOfName(dtype));
    const auto min = StatisticOf(table, tensor, Statistic::kMin), max = StatisticOf(table, tensor, Statistic::kMax);
    if (standard == nullptr || !min.has_value() || !max.has_value()) return std::nullopt;
    const double greatest = std::max(std::abs(*min), std::abs(*max)), limit = standard->largest / margin_;
    const bool offends = std::isfinite(greatest) && greatest > limit && !HoldsMask(dtype, *min, *max);
    if (!patience_.Count(offends)) return std::nullopt;
    return Found{
        .value = greatest,
        .offence = {.limit = limit,
                    .why = Cat("it reaches ", Shown(greatest), "; the largest number of ", dtype, " is ",
                               Shown(standard->largest), ", ", Shown(standard->largest / greatest), " times as much")}};
  }

 private:
  const double margin_;
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeOverflowSoon(const v1::Rule& rule) {
  return std::make_unique<TensorRuleOf<OverflowSoonWatch, v1::OverflowSoon>>(rule.overflow_soon());
}

}  // namespace msprobe::server
