#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/analysis/table/statistic.h"
#include "server/analysis/table/step_table.h"
#include "server/analysis/table/step_tables.h"

namespace msprobe::server {

struct LayerMapQuestion {
  // Of the target; golden ranks are paired with it as comparisons pair them. Absent: every rank, and a layer is a rank.
  std::optional<v1::Rank> rank;
  Statistic statistic = Statistic::kNorm;
  std::string tensors;  // shell pattern over full names
  uint32_t first_step = 0, last_step = UINT32_MAX;
  uint32_t first_layer = 0, last_layer = UINT32_MAX;  // indexes into LayerMap.layers
  size_t max_columns = 600, max_rows = 400;           // 1 or more
  // Bounds the values that are read of each side. Where there are more, steps are left out evenly; steps with NaN or
  // infinity stay in.
  size_t max_values = 10'000'000;
};

// One statistic of many tensors over many steps, as a picture of bounded size. A column stands for some consecutive
// steps, a row for some consecutive layers or ranks.
//
// A cell shows one of the values that fall into it: NaN if there is one, else an infinity, else the number farthest
// from 0. Tensors that HoldsMask, and those that are MasksOfInfinity, have no value: theirs would outshine all others.
// With a golden side, values are the target's less the golden side's; where both are NaN, or the same infinity, the
// difference is 0.
struct LayerMap {
  struct Cell {
    bool known = false;
    float value = 0;
    uint32_t step = 0;    // the value's step
    uint32_t tensor = 0;  // the value's tensor, an index into tensors
    uint32_t layer = 0;   // the value's layer, an index into layers
  };
  struct Span {
    uint32_t first = 0, last = 0;  // both included
  };
  struct Tensor {
    std::string name;    // "Torch.log.0.forward.output.0"
    std::string record;  // "Torch.log.0.forward"
  };

  std::vector<std::string>
      layers;  // every layer, in the order in which they ran; or every rank, ranks before processes
  std::vector<Tensor> tensors;
  std::vector<Span> columns;  // steps
  std::vector<Span> rows;     // layers, by index
  std::vector<Cell> cells;    // row by row
  size_t steps = 0;           // in the range
  size_t steps_read = 0;      // fewer where max_values left some out
};

// `golden` may be null. `tell` is given the progress in steps and says whether anybody still listens.
// NotFound: the target has no such step and rank; says what there is. InvalidArgument: no tensors are named, or the two
// sides have no step of this rank in common. Cancelled: nobody listens.
absl::StatusOr<LayerMap> MapLayers(const StepTables& target, const StepTables* golden, const LayerMapQuestion& question,
                                   int threads, const std::function<bool()>& cancelled,
                                   const std::function<bool(size_t done, size_t total)>& tell);

}  // namespace msprobe::server
