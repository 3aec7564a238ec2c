#include "server/monitor/shard_join.h"

#include <optional>
#include <utility>

namespace msprobe::server {

ShardJoin::ShardJoin(const ShardName& shard) : tensor_(shard.tensor), elements_(shard.whole), group_(shard.Ranks()) {}

std::vector<ShardJoin::Point> ShardJoin::Add(std::string_view statistic, uint32_t rank, uint64_t elements,
                                             uint32_t step, double value) {
  elements_of_[rank] = elements;
  Step& at = steps_[step];
  values_ -= at.shards.values();
  at.shards.Add(statistic, rank, elements, value);
  values_ += at.shards.values();
  std::vector<Point> points;
  for (std::string_view whole : WholeStatistics(statistic)) {
    const std::optional<double> of_whole = at.shards.Of(whole, elements_);
    if (of_whole.has_value()) points.push_back({.series = WholeName(tensor_, whole), .value = *of_whole});
  }
  at.is_whole |= !points.empty();
  while (at.is_whole && steps_.begin()->first < step) DropFirst();
  while (steps_.size() > kMostSteps || (values_ > kMostValues && steps_.size() > 1)) DropFirst();
  return points;
}

void ShardJoin::DropFirst() {
  const auto first = steps_.begin();
  values_ -= first->second.shards.values();
  if (!first->second.is_whole) {
    given_up_.push_back({.step = first->first, .missing = first->second.shards.Silent(RanksWithShards())});
  }
  steps_.erase(first);
}

std::vector<uint32_t> ShardJoin::RanksWithShards() const {
  uint64_t elements = 0;
  std::vector<uint32_t> ranks;
  for (const auto& [rank, of_rank] : elements_of_) {
    elements += of_rank;
    ranks.push_back(rank);
  }
  return elements < elements_ ? group_ : ranks;
}

std::vector<ShardJoin::GivenUp> ShardJoin::TakeGivenUp() { return std::exchange(given_up_, {}); }

}  // namespace msprobe::server
