#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/table/statistic.h"

namespace msprobe::server {

// A statistic that an operator wants as a time series, under a name that the operator chooses.
struct WatchedTensor {
  std::string name;  // the value of the label "watch"; names of tensors are never labels
  std::string glob;  // matches the tensor's full name; the first match of a step counts
  Statistic statistic = Statistic::kMax;
};

constexpr size_t kMaxWatched = 16;

// "NAME=GLOB:STATISTIC[,...]". InvalidArgument names the part that is wrong and what is allowed.
absl::StatusOr<std::vector<WatchedTensor>> ParseWatched(std::string_view text);

}  // namespace msprobe::server
