#include "server/shards/shown_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "server/store/session_order.h"

namespace msprobe::server {

absl::StatusOr<std::vector<ShownStep>> ShownSteps(const Store& store, uint32_t run) {
  auto steps = store.steps().Of(run);
  if (!steps.ok()) return steps.status();
  std::vector<ShownStep> shown;
  shown.reserve(steps->size());
  SessionOrder sessions(&store.catalogue(), run);
  for (auto& [key, row] : *steps) {
    if (shown.empty() || shown.back().key.rank != key.rank || shown.back().key.step != key.step) {
      shown.push_back({key, std::move(row), {}, nullptr, 0});
      continue;
    }
    ShownStep& other = shown.back();
    auto later = sessions.BeganLater(key.epoch, other.key.epoch);
    if (!later.ok()) return later.status();
    other.earlier_epochs.push_back(*later ? other.key.epoch : key.epoch);
    if (!*later) continue;
    other.key = key;
    other.row = std::move(row);
  }
  // Places are sorted rather than rows, which are slow to move; then each is moved once.
  std::vector<size_t> order(shown.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&shown](size_t a, size_t b) { return shown[a].key.step < shown[b].key.step; });
  std::vector<ShownStep> sorted;
  sorted.reserve(shown.size());
  for (size_t place : order) sorted.push_back(std::move(shown[place]));
  return sorted;
}

}  // namespace msprobe::server
