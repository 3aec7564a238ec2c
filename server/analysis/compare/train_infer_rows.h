#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/analysis/compare/train_infer.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// A row of a training or of an inference step, with what rows of the two correspond by: direction and number of the
// call, layer, module inside it as the inference engine calls it, and what follows the record's name.
struct KeyedRow {
  uint32_t row = 0;
  uint32_t entry = 0;
  std::string key;
};

// Those that take part, in the step's order: rules 1 and 2 of train_infer.h.
std::vector<KeyedRow> KeyedRows(const StepTable& table, TrainingBackend backend, bool training);

}  // namespace msprobe::server
