#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "msprobe/v1/query.pb.h"
#include "server/analysis/table/step_tables.h"

namespace msprobe::server {

// Processes that never had a rank count on from the last rank, since databases of graphs and trends number ranks only.
class RankNumbers {
 public:
  explicit RankNumbers(const std::vector<StepTables::Place>& places) {
    for (const StepTables::Place& place : places) {
      if (place.second.first == v1::Rank::RANK) numbers_[place.second] = place.second.second;
    }
    uint32_t next = 0;
    for (const auto& [rank, number] : numbers_) next = std::max(next, number + 1);
    for (const StepTables::Place& place : places) {
      if (numbers_.try_emplace(place.second, next).second) ++next;
    }
  }
  uint32_t Of(const StepTables::Place& place) const { return numbers_.at(place.second); }

 private:
  std::map<decltype(StepTables::Place::second), uint32_t> numbers_;
};

}  // namespace msprobe::server
