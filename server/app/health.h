#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace msprobe::server {

// Asks the health service of a server over a plain connection (host:port or unix:/path). An exec probe of Kubernetes
// runs this if TCP is TLS, which a kubelet's own gRPC probe does not speak. Unavailable: no answer, or not serving.
absl::Status AskHealth(const std::string& address, absl::Duration timeout);

}  // namespace msprobe::server
