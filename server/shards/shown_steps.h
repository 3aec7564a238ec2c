#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace msprobe::server {

class Peer;

// One step of one rank as it is shown: the step of the session that began last, and where it is kept.
struct ShownStep {
  StepKey key;
  storage::StepRow row;
  std::vector<uint32_t> earlier_epochs;
  Peer* peer = nullptr;        // who keeps it, and then key.run means nothing; null: this server
  int64_t opened_unix_us = 0;  // when its session was opened; 0 where this server is alone
};

// In order of step, then rank (ranks before processes).
absl::StatusOr<std::vector<ShownStep>> ShownSteps(const Store& store, uint32_t run);

}  // namespace msprobe::server
