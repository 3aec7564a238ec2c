#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

class StaleWatch final : public TensorWatch {
 public:
  explicit StaleWatch(const v1::Stale& rule) : patience_(Or(rule.patience(), uint32_t{3})) {}

  std::optional<Found> Look(const StepTable& table, const Row& tensor) override {
    std::string key = TensorKey(table, tensor);
    const bool is_same = key == before_;
    before_ = std::move(key);
    if (!patience_.Count(is_same)) return std::nullopt;
    return Found{.value = StatisticOf(table, tensor, Statistic::kNorm).value_or(0),
                 .offence = {.limit = 0,
                             .why = Cat("it is the tensor of the step before, by ",
                                        tensor.checksum.empty() ? "all its statistics" : "its checksum", ", for ",
                                        patience_.needed(), " points or more")}};
  }

 private:
  std::string before_;
  Patience patience_;
};

}  // namespace

std::unique_ptr<Rule> MakeStale(const v1::Rule& rule) {
  return std::make_unique<TensorRuleOf<StaleWatch, v1::Stale>>(rule.stale());
}

}  // namespace msprobe::server
