#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::core {

// Gives the gRPC target for "host:port", "[v6]:port" or "unix:/path". InvalidArgument names the address and what is
// allowed.
absl::StatusOr<std::string> ParseServerAddress(std::string_view address);

// Gives the targets for one address or several, separated by commas. Several are servers of one cluster; any of them
// may be asked.
absl::StatusOr<std::vector<std::string>> ParseServerAddresses(std::string_view addresses);

// Whether bytes that are sent to a target stay on this machine: it is a socket, "localhost", or a literal address of
// loopback. Any other name may lead anywhere, whatever it begins with.
bool IsOfThisMachine(std::string_view target);

}  // namespace msprobe::core
