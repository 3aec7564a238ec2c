#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace msprobe::server {

// The points of one series by step and rank, for kinds that hold ranks against each other. Threads: one at a time.
//
// 1. A step is given out once: when all ranks that have the series have it, or when too many values wait. The first one
//    also waits for a later one, because until then it is unknown which ranks there are.
// 2. Points of a step that was given out are ignored.
class RankValues {
 public:
  static constexpr size_t kMostValues = 16384;  // that wait

  struct Step {
    uint32_t step = 0;
    std::vector<std::pair<uint32_t, double>> values;  // by RankCode, of two ranks or more
  };

  // A rank that comes again, after a restart, begins the steps anew.
  void Join(uint32_t rank);
  void Leave(uint32_t rank);
  size_t ranks() const { return ranks_.size(); }
  // The steps that the point completes, in order.
  std::vector<Step> Add(uint32_t rank, uint32_t step, double value);

 private:
  std::map<uint32_t, uint32_t> ranks_;  // watches of each
  std::map<uint32_t, std::vector<std::pair<uint32_t, double>>> waiting_;
  size_t values_ = 0;  // of waiting_
  std::set<uint32_t> has_joined_;
  bool has_first_ = false;
  uint32_t first_ = 0;  // step
  int64_t given_through_ = -1;
};

}  // namespace msprobe::server
