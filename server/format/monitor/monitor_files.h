#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::server {

// One row: the statistics of a target in one step of a rank.
struct MonitorRow {
  uint32_t rank = 0;
  uint32_t step = 0;
  uint32_t micro_step = 0;
  int64_t vpp_stage = 0;
  size_t metric = 0;                          // MonitorFiles::kMetrics
  std::string_view name;                      // of the target; borrowed for the length of the call
  std::vector<std::optional<double>> values;  // by MonitorFiles::statistics()
};

// The CSV files of mindstudio-probe's training monitors:
//   TrainerMon        {Mmmdd_HH-MM-SS}-rank{R}-{id}/{metric}_{first}-{last}.csv
//   TrainerMonitorV2  rank_{R}/{module|weight_grad|optimizer|param|cc}_step{first}-{last}.csv, whose rows say the metric
//                     in their column "scope"
//
// Constant after Find. Memory: one row. Threads: any.
class MonitorFiles {
 public:
  // As TrainerMon calls them.
  static constexpr std::string_view kMetrics[] = {"actv",          "actv_grad",    "exp_avg",      "exp_avg_sq", "grad_unreduced",
                                                  "grad_reduced", "param_origin", "param_updated", "other"};

  // Looks into directories of ranks and the heads of their files. `statistics`: the columns to look for, by name.
  // NotFound: the directory is not there or has no such files. InvalidArgument: a file is none of these; says the file
  // and what is missing in its first line.
  static absl::StatusOr<MonitorFiles> Find(const std::string& directory, const std::vector<std::string>& statistics);

  // Statistics that some file has, in the order asked for.
  const std::vector<std::string>& statistics() const { return statistics_; }
  // The same of each metric; empty: no file can have the metric.
  const std::vector<std::vector<std::string>>& statistics_of_metrics() const { return statistics_of_metrics_; }

  // Visits every row, rank by rank, with files of a rank in order of time, metric and first step. A row that cannot be
  // read is left out, and said once a file to `warn`. Stops at the first status that is not OK.
  absl::Status ForEachRow(absl::FunctionRef<absl::Status(const MonitorRow& row)> visit,
                          absl::FunctionRef<void(const std::string& warning)> warn) const;

 private:
  struct File {
    std::string path;
    uint32_t rank = 0;
    std::string time;              // of its directory, in order of texts; of TrainerMonitorV2: empty
    std::optional<size_t> metric;  // nothing: rows say it
    uint64_t first_step = 0;
  };

  absl::Status ReadHead(const File& file, const std::vector<std::string>& wanted,
                        std::vector<std::vector<bool>>& has) const;
  absl::Status ReadRows(const File& file, absl::FunctionRef<absl::Status(const MonitorRow& row)> visit,
                        absl::FunctionRef<void(const std::string& warning)> warn) const;

  std::vector<File> files_;
  std::vector<std::string> statistics_;
  std::vector<std::vector<std::string>> statistics_of_metrics_;
};

}  // namespace msprobe::server
