#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/analysis/step_source.h"
#include "server/query/step_layouts.h"
#include "server/store/store.h"

namespace msprobe::server {

// A stored step as analysis sees it: what an export of it would say, with the extended statistics.
// The store outlives the source. DataLoss: what is stored does not fit together.
absl::StatusOr<std::unique_ptr<StepSource>> ReadStoredStep(const Store& store, const StepKey& step,
                                                           const DumpReading& reading, StepLayouts& layouts);

}  // namespace msprobe::server
