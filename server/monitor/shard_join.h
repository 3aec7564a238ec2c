#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/series/sharded_step.h"
#include "server/format/series/shard_name.h"

namespace msprobe::server {

// One tensor that a group of ranks has shards of: makes points of the whole of theirs as they come.
//
// 1. A point of the whole is given out when the last of its shards has come. Steps grow, until the job is restarted.
// 2. A step that waits for a shard is given up when a later one is whole, or more than kMostSteps or kMostValues wait.
// Threads: one at a time.
class ShardJoin {
 public:
  static constexpr size_t kMostSteps = 100;
  static constexpr size_t kMostValues = 16384;

  explicit ShardJoin(const ShardName& shard);

  uint32_t first_rank() const { return group_.front(); }
  const std::string& tensor() const { return tensor_; }

  struct Point {
    std::string series;
    double value = 0;
  };
  // What a rank's point of the step makes whole.
  std::vector<Point> Add(std::string_view statistic, uint32_t rank, uint64_t elements, uint32_t step, double value);

  struct GivenUp {
    uint32_t step = 0;
    std::vector<uint32_t> missing;  // ranks
  };
  std::vector<GivenUp> TakeGivenUp();

 private:
  struct Step {
    ShardedStep shards;
    bool is_whole = false;  // some statistic is
  };
  void DropFirst();
  // Of the group those that have elements, as far as is known: once all elements have been seen, the others have none.
  std::vector<uint32_t> RanksWithShards() const;

  const std::string tensor_;
  const uint64_t elements_;  // of the whole
  const std::vector<uint32_t> group_;
  std::map<uint32_t, uint64_t> elements_of_;  // by rank
  std::map<uint32_t, Step> steps_;
  size_t values_ = 0;  // of steps_
  std::vector<GivenUp> given_up_;
};

}  // namespace msprobe::server
