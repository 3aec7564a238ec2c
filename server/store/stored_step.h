#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace msprobe::server {

// The StepReader over the store's rows. Holds the blocks of the step; records are decoded one at a time.
absl::StatusOr<std::unique_ptr<StepReader>> OpenStoredStep(const Store& store, const storage::RunRow& run,
                                                           const StepKey& key, const storage::StepRow& row);

}  // namespace msprobe::server
