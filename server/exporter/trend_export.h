#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/analysis/table/step_table.h"
#include "server/exporter/trend_database.h"

namespace msprobe::server {

struct TrendOptions {
  // The axis counts how often the model ran (StepGraph::micro_steps) rather than steps; it begins with 0. Then tables
  // need their calls.
  bool micro_steps = false;
  // Texts in names of records, and what stands in their place; one after another.
  std::vector<std::pair<std::string, std::string>> renames;
};

// Writes the statistics of steps into a trend database: a row for each tensor of a floating dtype. Forward calls that
// checkpointing repeated (IsRecomputed) are the metric "recompute"; tables need their stacks for it.
//
// What the database says is what mindstudio-probe's data2db says; docs/compatibility.md lists what differs.
// Threads: one.
class TrendExport {
 public:
  // The file appears by Finish; see TrendDatabase.
  TrendExport(std::string path, TrendOptions options) : path_(std::move(path)), options_(std::move(options)) {}

  // Steps come in order, the ranks of a step one after another. `rank`: as the database numbers it.
  absl::Status Add(uint32_t step, uint32_t rank, const StepTable& table);
  // InvalidArgument: no step had a tensor of a floating dtype.
  absl::Status Finish();

 private:
  // Where a row of a table goes.
  struct Place {
    uint32_t row = 0;
    uint32_t micro_step = 0;
    int64_t target = 0;
    TrendMetric metric = TrendMetric::kForward;
  };
  struct Plan {
    std::vector<Place> places;
    uint32_t micro_steps = 1;
    std::shared_ptr<const void> layout;  // what the key of the plan lives in
  };

  absl::Status Begin(const StepTable& table);
  absl::StatusOr<Plan> Make(const StepTable& table);
  absl::StatusOr<const Plan*> PlanOf(const StepTable& table);

  const std::string path_;
  const TrendOptions options_;
  std::unique_ptr<TrendDatabase> database_;  // null: no step came yet
  bool counts_ = false;                      // of NaN and zeros are among the columns

  // By StepTable.layout: steps that repeat cost no look at their names.
  absl::flat_hash_map<const void*, Plan> plans_;
  size_t planned_rows_ = 0;
  Plan plan_;  // of a table without a layout

  std::optional<uint32_t> step_;  // the step at hand
  uint32_t first_ = 0;            // its place on the axis
  uint32_t width_ = 1;            // the micro steps that its ranks have
};

}  // namespace msprobe::server
