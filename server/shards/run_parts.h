#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/shards/shards.pb.h"
#include "server/store/store.h"

namespace msprobe::server {

// This server's part of each of its runs, steps summed up, with summary, latest_opened_unix_us and step_numbers.
absl::StatusOr<std::vector<shards::RunPart>> RunPartsHere(const Store& store);

}  // namespace msprobe::server
