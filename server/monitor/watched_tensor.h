#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/table/statistic.h"

namespace msprobe::server {

// A statistic that an operator wants as a time series, under a name of his.
struct WatchedTensor {
  std::string name;  // the label "watch"; tensors' own names are never labels
  std::string glob;  // of the tensor's full name; the first of a step that fits counts
  Statistic statistic = Statistic::kMax;
};

constexpr size_t kMaxWatched = 16;

// "NAME=GLOB:STATISTIC[,...]". InvalidArgument names the part that is wrong and what is allowed.
absl::StatusOr<std::vector<WatchedTensor>> ParseWatched(std::string_view text);

}  // namespace msprobe::server
