#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace msprobe::server {

// One step of one rank as it is shown: that of the session that began last.
struct ShownStep {
  StepKey key;
  storage::StepRow row;
  std::vector<uint32_t> earlier_epochs;
};

// In order of step, then rank (ranks before processes).
absl::StatusOr<std::vector<ShownStep>> ShownSteps(const Store& store, uint32_t run);

}  // namespace msprobe::server
