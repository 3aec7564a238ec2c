#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/analysis/table/step_source.h"
#include "server/query/step_layouts.h"
#include "server/store/step_origin.h"

namespace msprobe::server {

// A step at rest as analysis sees it: what an export of it would say, with the extended statistics.
// What the origin came from outlives the source. DataLoss: what is stored does not fit together.
absl::StatusOr<std::unique_ptr<StepSource>> ReadStep(std::unique_ptr<StepOrigin> origin, const DumpReading& reading,
                                                     StepLayouts& layouts);

}  // namespace msprobe::server
