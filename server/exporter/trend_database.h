#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/sqlite_file.h"
#include "server/exporter/trend_names.h"

namespace msprobe::server {

// What a target is, apart from its number.
struct TrendTarget {
  std::string name;
  int64_t vpp_stage = 0;   // of a virtual pipeline; 0 without one
  int64_t micro_step = 0;  // the number of a call in its step, where several belong to one step

  auto operator<=>(const TrendTarget&) const = default;  // NOLINT(modernize-use-nullptr): it has no pointer
  template <typename H>
  friend H AbslHashValue(H hash, const TrendTarget& target) {
    return H::combine(std::move(hash), target.name, target.vpp_stage, target.micro_step);
  }
};

// A trend database, as the plugin TrendVis of TensorBoard reads it: one SQLite file with statistics of targets (what a
// tensor is called in every step) by rank and step, and tags by which targets are found.
//
// The file appears whole by Finish; see SqliteFile, also for errors. Memory is used for targets and tags, not for
// values. Threads: one.
class TrendDatabase {
 public:
  struct Metric {
    std::string name;
    std::vector<std::string> statistics;  // of TrendDatabase::kStatistics
  };
  // The statistics that the plugin knows.
  static constexpr std::string_view kStatistics[] = {
      "norm",        "max", "min",         "mean",  "nans",     "zeros", "entropy",
      "softmax_max", "sr",  "kernel_norm", "std_x", "jacobian", "proxy", "token_similarity"};

  // columns: those of a row of values, of kStatistics.
  static absl::StatusOr<std::unique_ptr<TrendDatabase>> Create(std::string path, std::vector<Metric> metrics,
                                                               const std::vector<std::string>& columns);

  // The number of a target, which is made where it is new. Numbers grow from 1 in order of first use.
  absl::StatusOr<int64_t> Number(const TrendTarget& target);
  // metric: by its place in the list of metrics. A tag that the target has is passed over.
  absl::Status AddTags(int64_t target, size_t metric, const std::vector<TrendTag>& tags);
  // What stands for infinity: beyond every number of 32 and 16 bits. The plugin's colour scales know no infinity.
  static constexpr double kInfinity = 1e39;

  // values: one for each column; nothing and NaN are NULL, which the plugin leaves empty. A row of the same rank, step,
  // target and metric is replaced.
  absl::Status AddValues(uint32_t rank, uint32_t step, int64_t target, size_t metric,
                         std::span<const std::optional<double>> values);
  uint64_t rows() const { return rows_; }

  absl::Status Finish();

 private:
  TrendDatabase(std::unique_ptr<SqliteFile> file, std::vector<Metric> metrics, size_t columns);

  const std::unique_ptr<SqliteFile> file_;
  const std::vector<Metric> metrics_;
  const std::string add_values_;  // the statement
  absl::flat_hash_map<TrendTarget, int64_t> targets_;
  std::map<std::pair<TrendTag, size_t>, int64_t> tags_;  // by metric
  std::set<std::pair<int64_t, int64_t>> tagged_;         // tag, target
  std::vector<SqliteValue> row_;
  uint64_t rows_ = 0;
  uint32_t max_rank_ = 0;
  uint32_t min_step_ = UINT32_MAX;
  uint32_t max_step_ = 0;
};

}  // namespace msprobe::server
