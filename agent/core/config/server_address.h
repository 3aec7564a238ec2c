#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::core {

// The gRPC target of "host:port", "[v6]:port" or "unix:/path". InvalidArgument names the address and what is allowed.
absl::StatusOr<std::string> ParseServerAddress(std::string_view address);

// Of one address or several, separated by commas: servers of one cluster, any of which may be asked.
absl::StatusOr<std::vector<std::string>> ParseServerAddresses(std::string_view addresses);

// Whether what goes to an address that the above give leaves this machine by no wire: a socket, "localhost", or a
// literal address of loopback. Any other name may lead anywhere, whatever it begins with.
bool IsOfThisMachine(std::string_view address);

}  // namespace msprobe::core
