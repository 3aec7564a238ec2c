#include "server/monitor/rules/rank_values.h"

namespace msprobe::server {

void RankValues::Join(uint32_t rank) {
  ++ranks_[rank];
  if (!has_joined_.insert(rank).second) {
    waiting_.clear();
    values_ = 0;
    has_first_ = false;
    given_through_ = -1;
  }
}

void RankValues::Leave(uint32_t rank) {
  if (--ranks_[rank] == 0) ranks_.erase(rank);
}

std::vector<RankValues::Step> RankValues::Add(uint32_t rank, uint32_t step, double value) {
  std::vector<Step> complete;
  if (int64_t{step} <= given_through_) return complete;
  if (!has_first_) first_ = step;
  has_first_ = true;
  waiting_[step].emplace_back(rank, value);
  ++values_;
  while (!waiting_.empty()) {
    const auto oldest = waiting_.begin();
    const bool is_whole =
        ranks_.size() > 1 && oldest->second.size() >= ranks_.size() && (oldest->first != first_ || waiting_.size() > 1);
    if (!is_whole && values_ <= kMostValues) break;
    given_through_ = oldest->first;
    values_ -= oldest->second.size();
    if (oldest->second.size() > 1) complete.push_back({.step = oldest->first, .values = std::move(oldest->second)});
    waiting_.erase(oldest);
  }
  return complete;
}

}  // namespace msprobe::server
