#pragma once

#include <cstdint>
#include <memory>

#include "server/analysis/compare/row_match.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// What ran the training side of a reinforcement learning step (verl); the other side is an inference engine with vLLM's
// module names.
enum class TrainingBackend : uint8_t { kNone, kFsdp, kMegatron };

// A training step beside an inference step of the same weights, row by row, as mindstudio-probe 26.2.0 pairs them:
//   1. of the training step what lies between the backward pass of its whole model and the next forward pass of its
//      embedding is left out;
//   2. rows correspond by layer ("layers.N"), module inside it, direction and number of the call (counted anew on the
//      training side), and what follows the record's name. Modules are translated: q_proj, k_proj, v_proj are qkv_proj
//      and gate_proj, up_proj are gate_up_proj of FSDP's; Megatron's linear_fc1 is gate_up_proj, linear_proj o_proj...;
//   3. several rows that correspond to one are a row of their own: names, dtypes, shapes, means and norms joined by
//      ';', the greatest Max and the least Min; contents joined along the first axis (parameters) or the second
//      (outputs), axes of size 1 left out, where mindstudio-probe joins them;
//   4. in order of both sides; where the two orders contradict each other, in that of the training side.
// Both sides have a row for every row of the table; one that a side lacks is spelled "N/A" there.
struct TrainInferSides {
  std::unique_ptr<TableSource> training;
  std::unique_ptr<TableSource> inference;
  RowMatch match;
};
TrainInferSides AlignTrainInfer(std::unique_ptr<TableSource> training, std::unique_ptr<TableSource> inference,
                                TrainingBackend backend);

}  // namespace msprobe::server
