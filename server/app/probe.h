#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace msprobe::server {

// Asks the health service of a server on this machine, over a plain connection (host:port or unix:/path): what an exec
// probe runs where a kubelet's own gRPC probe cannot, because TCP is TLS. Unavailable: no answer, or not serving.
absl::Status ProbeHealth(const std::string& address, absl::Duration timeout);

}  // namespace msprobe::server
