#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/analysis/table/statistic.h"
#include "server/analysis/table/step_table.h"
#include "server/analysis/table/step_tables.h"

namespace msprobe::server {

// A step of one side, or of both.
struct TrendStop {
  std::optional<StepTables::Place> target;
  std::optional<StepTables::Place> golden;
  const StepTables::Place& shown() const { return target ? *target : *golden; }
};

// One tensor of one step. Views live as long as the call that gives them.
struct TrendTensor {
  const StepTables::Place& place;
  size_t row = 0;  // among the wanted tensors of the step
  std::string_view name;
  std::string_view dtype;
  std::string_view shape;
  Entry entry;  // its record; a directory gives no parent
};

// Takes what a walk finds, on the thread that walks.
class TrendSink {
 public:
  virtual ~TrendSink() = default;
  // The points that follow belong to this tensor and statistic (an index into TrendQuestion.statistics). False: give
  // none.
  virtual bool Begin(const TrendTensor& tensor, size_t statistic) = 0;
  // value, nothing: the step has the tensor, but not the statistic. golden, nothing: the same, or the golden side has
  // no such tensor, or there is no golden side.
  virtual void Point(uint32_t step, uint32_t token, std::optional<double> value, std::optional<double> golden) = 0;
  // False: nobody listens any more.
  virtual bool Progress(size_t done, size_t total) = 0;
};

struct TrendQuestion {
  std::string name_glob;  // shell pattern over full names of tensors
  std::vector<Statistic> statistics;
  int threads = 2;
  std::function<bool()> cancelled;  // may be called from any thread
  bool without_masks = false;       // tensors that HoldsMask, and MasksOfInfinity, have no value
};

// Gives the sink the statistics that are asked for, in all steps of `stops`. Without a golden side it reads tiles where
// it can; all else it reads step by step on several threads. Tensors of one step come together and in order; steps that
// come from tiles come out of order.
// Cancelled: nobody listens.
absl::Status WalkTrend(const TrendQuestion& question, const StepTables& target, const StepTables* golden,
                       std::vector<TrendStop> stops, TrendSink& sink);

}  // namespace msprobe::server
