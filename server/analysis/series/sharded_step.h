#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/format/series/shard_name.h"

namespace msprobe::server {

// The statistics of one tensor at one step, from those of its shards:
//
//   max, min, abs_max      the extreme
//   range                  max - min
//   norm                   root of the sum of squares
//   nan, inf               the sum
//   mean, zero_share, underflow_FORMAT, to_zero_bf16, to_zero_fp16    the mean, by elements
//   rms                    root of the mean square, by elements
//   variance               mean of variances, and variance of means, by elements
//   update_ratio/NAME      root of the mean square of "change" by that of "before", by elements
//
// They are what one pass over the whole gives, to within rounding; the shares, of finite tensors. Kurtosis and what
// scales of the whole decide (error_FORMAT) cannot be had so.
class ShardedStep {
 public:
  // A rank that comes again, after a restart, begins the statistic anew.
  void Add(std::string_view statistic, uint32_t rank, uint64_t elements, double value);

  // Of the tensor with so many elements. nullopt: a shard is missing, or the statistic cannot be had.
  std::optional<double> Of(std::string_view statistic, uint64_t whole) const;
  // Whether shards have sent what the statistic needs, one or all of them.
  bool Has(std::string_view statistic) const;
  // The ranks, among these, that have sent nothing.
  std::vector<uint32_t> Silent(const std::vector<uint32_t>& ranks) const;
  size_t values() const { return values_; }

 private:
  struct Shard {
    double elements = 0, value = 0;
  };
  using Shards = std::map<uint32_t, Shard>;  // by RankCode

  // Null: some are missing.
  const Shards* Whole(std::string_view statistic, uint64_t whole) const;

  std::map<std::string, Shards, std::less<>> statistics_;
  size_t values_ = 0;
};

// Statistics of the whole tensor that need this one of its shards: "mean" -> mean, variance. Empty: none does.
std::vector<std::string_view> WholeStatistics(std::string_view statistic);
// Whether shards that send these statistics give this one of the whole. The variance needs the mean beside it, the
// range max and min.
bool GiveWhole(std::string_view statistic, absl::FunctionRef<bool(std::string_view statistic)> is_sent);
// The series of a tensor's statistic: "fc.weight.parameter:norm"; of update_ratio/NAME, whose statistic is empty, that.
std::string WholeName(std::string_view tensor, std::string_view statistic);
// The series of wholes that a rank's series counts in. Empty: it is none of a shard, or cannot be reduced.
std::vector<std::string> WholesOf(std::string_view series);

}  // namespace msprobe::server
