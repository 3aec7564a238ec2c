#pragma once

#include "absl/status/statusor.h"
#include "server/web/web_query.h"

namespace msprobe::server {

// "side": target or golden; target if it is missing. InvalidArgument: another word, or golden without "golden", a run.
absl::StatusOr<bool> IsGoldenSide(const WebQuery& query);

}  // namespace msprobe::server
