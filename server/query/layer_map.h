#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/analysis/table/statistic.h"
#include "server/analysis/table/step_table.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

struct LayerMapRequest {
  std::string run;
  std::string golden;  // empty: values of the run; else differences, those of the run less those of this one
  v1::Rank rank;       // of `run`; of `golden` as comparisons pair ranks
  Statistic statistic = Statistic::kNorm;
  std::string tensors;  // shell pattern over full names
  uint32_t first_step = 0, last_step = UINT32_MAX;
  uint32_t first_layer = 0, last_layer = UINT32_MAX;  // by place in LayerMap.layers
  size_t columns = 600, rows = 400;                   // at most; 1 or more
  // Values that are read at most, of each side: beyond, steps are left out evenly, but for those with NaN or infinity.
  size_t max_values = 10'000'000;
};

// One statistic of many tensors over many steps as a picture of a bounded size: a column for some consecutive steps, a
// row for some consecutive layers.
//
// A cell is the value that is farthest from 0 of all that fall into it; NaN goes before infinity, infinity before
// numbers. Of two runs, values that are NaN or the same infinity in both do not differ.
struct LayerMap {
  struct Cell {
    bool known = false;
    float value = 0;
    uint32_t step = 0;    // where that value is
    uint32_t tensor = 0;  // index into tensors
  };
  struct Span {
    uint32_t first = 0, last = 0;  // included
  };
  struct Tensor {
    std::string name;    // "Torch.log.0.forward.output.0"
    std::string record;  // "Torch.log.0.forward"
  };

  std::vector<std::string> layers;  // all, in the order in which they ran
  std::vector<Tensor> tensors;
  std::vector<Span> columns;  // steps
  std::vector<Span> rows;     // layers, by index
  std::vector<Cell> cells;    // row by row
  size_t steps = 0;           // that the run has there
  size_t steps_read = 0;
};

// NotFound names the run, or what there is of it; InvalidArgument what no two sides have. `tell` hears of progress in
// steps and says whether anybody listens.
absl::StatusOr<LayerMap> MapLayers(const AnalysisContext& context, const LayerMapRequest& request,
                                   const std::function<bool()>& cancelled,
                                   const std::function<bool(size_t done, size_t total)>& tell);

}  // namespace msprobe::server
