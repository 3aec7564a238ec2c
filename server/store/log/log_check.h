#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::server {

// Says, in lines for people, what a start would leave out because the log is damaged: first where the damage is and how
// many bytes lie behind it, then which batches and steps of which run and rank can still be read there. No lines: the
// whole log can be replayed. A log that ends within its last write is sound, since that write was never acknowledged.
//
// Changes nothing. AlreadyExists: somebody has the data directory open.
absl::StatusOr<std::vector<std::string>> CheckLogs(const std::string& data_directory);

}  // namespace msprobe::server
