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
#include "server/query/analysis_context.h"
#include "server/query/opened_source.h"

namespace msprobe::server {

// A step of one side, or of both.
struct TrendStop {
  std::optional<OpenedSource::Place> target;
  std::optional<OpenedSource::Place> golden;
  const OpenedSource::Place& shown() const { return target ? *target : *golden; }
};

// One tensor of one step. Views live as long as the call that gives them.
struct TrendTensor {
  const OpenedSource::Place& place;
  size_t row = 0;  // among the wanted tensors of the step
  std::string_view name;
  std::string_view dtype;
  std::string_view shape;
  Entry entry;  // its record; of directories without the parent
};

// Takes what a walk finds, on the thread that walks.
class TrendSink {
 public:
  virtual ~TrendSink() = default;
  // The points that follow are of this tensor and statistic (an index into those asked for). False: give none.
  virtual bool Begin(const TrendTensor& tensor, size_t statistic) = 0;
  // Nothing: the step has the tensor and not the statistic; of golden also: it has no such tensor, or was not asked.
  virtual void Point(uint32_t step, uint32_t token, std::optional<double> value, std::optional<double> golden) = 0;
  // False: nobody listens any more.
  virtual bool Progress(size_t done, size_t total) = 0;
};

// Reads statistics of the tensors that a shell pattern names, in the steps given: of one side from tiles where it can,
// else step by step on `context.threads` threads.
// Threads: one. Everything given outlives it.
class TrendWalk {
 public:
  TrendWalk(const AnalysisContext& context, const std::string& name_glob, const std::vector<Statistic>& statistics,
            const std::function<bool()>& cancelled);

  // Tensors of one step come together and in order; steps do not, where some are tiles. Cancelled: nobody listens.
  absl::Status Run(const OpenedSource& target, const OpenedSource* golden, std::vector<TrendStop> stops,
                   TrendSink& sink);

 private:
  struct State;

  const AnalysisContext& context_;
  const std::string& name_glob_;
  const std::vector<Statistic>& statistics_;
  const std::function<bool()>& cancelled_;
};

}  // namespace msprobe::server
