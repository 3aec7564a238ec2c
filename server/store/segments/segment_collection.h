#pragma once

#include "absl/status/status.h"
#include "server/store/database.h"

namespace msprobe::server {

// Gives back the space of segments: deletes those without live bytes, and moves what lives in those that are mostly
// garbage. Takes rows as they are while it runs: reading and writing go on. One call at a time.
absl::Status CollectSegments(Database& database);

}  // namespace msprobe::server
