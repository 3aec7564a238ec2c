#pragma once

#include <cstdint>
#include <memory>

#include "server/analysis/compare/row_match.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// The backend of the training side of a reinforcement learning step (verl). The other side is an inference engine with
// vLLM's module names.
enum class TrainingBackend : uint8_t { kNone, kFsdp, kMegatron };

// A training step beside an inference step of the same weights, row by row, as mindstudio-probe 26.2.0 pairs them:
//   1. The records of the training step between the backward pass of its whole model and the next forward pass of its
//      embedding are left out.
//   2. Rows correspond by layer ("layers.N"), module inside the layer, direction and number of the call (counted anew
//   on
//      the training side), and the part of the name behind the record's. Modules are translated: FSDP's q_proj, k_proj,
//      v_proj to qkv_proj, its gate_proj and up_proj to gate_up_proj; Megatron's linear_fc1 to gate_up_proj, its
//      linear_proj to o_proj, and so on.
//   3. Where several rows correspond to one, they become a new row: names, dtypes, shapes, means and norms joined by
//      ';', the greatest Max, the least Min. Contents are joined along the first axis (parameters) or the second
//      (outputs) without axes of size 1, where mindstudio-probe joins them.
//   4. Rows stand in the order of both sides; where the two orders contradict each other, in the training side's.
// Both sides have a row for every row of the table; a row that a side lacks is called "N/A" there.
struct TrainInferSides {
  std::unique_ptr<TableSource> training;
  std::unique_ptr<TableSource> inference;
  RowMatch match;
};
TrainInferSides AlignTrainInfer(std::unique_ptr<TableSource> training, std::unique_ptr<TableSource> inference,
                                TrainingBackend backend);

}  // namespace msprobe::server
