#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace msprobe::server {

class Peer;

// One step of one rank as it is shown, that of the session that began last, and where it is.
struct ShownStep {
  StepKey key;
  storage::StepRow row;
  std::vector<uint32_t> earlier_epochs;
  Peer* peer = nullptr;        // null: this server has it. Else key.run means nothing
  int64_t opened_unix_us = 0;  // of its session; where there are several servers
};

// In order of step, then rank (ranks before processes).
absl::StatusOr<std::vector<ShownStep>> ShownSteps(const Store& store, uint32_t run);

}  // namespace msprobe::server
