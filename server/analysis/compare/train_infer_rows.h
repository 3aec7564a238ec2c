#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/analysis/compare/train_infer.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// A row of a training or an inference step. Rows with the same key correspond. The key is made of direction and number
// of the call, layer, module inside the layer by the inference engine's name, and the part of the row's name behind the
// record's.
struct KeyedRow {
  uint32_t row = 0;
  uint32_t entry = 0;
  std::string key;
};

// The rows that take part, in the step's order, by rules 1 and 2 of train_infer.h.
std::vector<KeyedRow> KeyedRows(const StepTable& table, TrainingBackend backend, bool training);

}  // namespace msprobe::server
