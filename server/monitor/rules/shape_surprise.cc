#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class ShapeSurpriseWatch final : public TensorWatch {
 public:
  explicit ShapeSurpriseWatch(const v1::ShapeSurprise& rule) : constant_(Or(rule.constant(), uint32_t{8})) {}

  std::optional<Found> Look(const StepTable& table, const Row& tensor) override {
    const std::string_view shape = table.text(tensor.shape);
    const bool is_same = shape == shape_;
    const std::string before = is_same ? std::string() : std::exchange(shape_, std::string(shape));
    const uint32_t steps = std::exchange(steps_, is_same ? steps_ + 1 : 1);
    if (is_same || steps < constant_) return std::nullopt;
    return Found{
        .value = ElementsOf(shape),
        .offence = {.limit = ElementsOf(before),
                    .why = Cat("its shape is ", shape, "; it was ", before, " at the ", steps, " points before")}};
  }

 private:
  const uint32_t constant_;
  std::string shape_;
  uint32_t steps_ = 0;  // in a row that had it
};

}  // namespace

std::unique_ptr<Rule> MakeShapeSurprise(const v1::Rule& rule) {
  return std::make_unique<TensorRuleOf<ShapeSurpriseWatch, v1::ShapeSurprise>>(rule.shape_surprise());
}

}  // namespace msprobe::server
