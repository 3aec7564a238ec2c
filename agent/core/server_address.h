#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace msprobe::core {

// The gRPC target of "host:port", "[v6]:port" or "unix:/path". InvalidArgument names the address and what is allowed.
absl::StatusOr<std::string> ParseServerAddress(std::string_view address);

}  // namespace msprobe::core
