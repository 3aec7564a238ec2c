#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/analysis/step_source.h"
#include "server/store/step_reader.h"
#include "server/store/store.h"

namespace msprobe::server {

// A stored step as analysis sees it: what a default export of it would say, with the extended statistics.
// The store outlives the source.
absl::StatusOr<std::unique_ptr<StepSource>> ReadStoredStep(StepReader& reader, const Store& store,
                                                           const DumpReading& reading);

}  // namespace msprobe::server
