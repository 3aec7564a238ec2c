#pragma once

#include "absl/status/status.h"
#include "server/analysis/table/step_table.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// Gives the table of a stored step its calls, with their stacks: those that the construct.json of its export would
// have. NotFound: the run has no stack of some id.
absl::Status AddStoredCalls(RecordSource& records, StepTable& table);

}  // namespace msprobe::server
