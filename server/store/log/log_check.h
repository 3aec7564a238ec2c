#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::server {

// What a start would leave out because the log is damaged, for people: first where the damage is and how much lies
// behind it, then, of what can still be read there, which batches and steps of which run and rank. Empty: all of the
// log can be replayed. A log that ends within its last write is sound: that write was never acknowledged.
//
// Reads the logs of a data directory that nobody has open, and changes nothing. AlreadyExists: somebody has it open.
absl::StatusOr<std::vector<std::string>> CheckLogs(const std::string& data_directory);

}  // namespace msprobe::server
