#include "server/query/shown_steps.h"

#include <algorithm>
#include <utility>

namespace msprobe::server {

absl::StatusOr<std::vector<ShownStep>> ShownSteps(const Store& store, uint32_t run) {
  auto steps = store.Steps(run);
  if (!steps.ok()) return steps.status();
  std::vector<ShownStep> shown;
  for (auto& [key, row] : *steps) {
    if (!shown.empty() && shown.back().key.rank == key.rank && shown.back().key.step == key.step) {
      shown.back().earlier_epochs.push_back(shown.back().key.epoch);
      shown.back().key = key;
      shown.back().row = std::move(row);
    } else {
      shown.push_back({key, std::move(row), {}});
    }
  }
  std::stable_sort(shown.begin(), shown.end(),
                   [](const ShownStep& a, const ShownStep& b) { return a.key.step < b.key.step; });
  return shown;
}

}  // namespace msprobe::server
