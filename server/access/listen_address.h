#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::server {

// host[:port] or [IPv6 address][:port], as it stands in a Host header, a flag or a URL.
struct HostPort {
  std::string host;  // a name or an address, without brackets
  std::optional<int> port;
};

// nullopt: the text is anything else, for example it has a user, a path, a space or a second colon.
std::optional<HostPort> ParseHostPort(std::string_view text);

// Whether a host is certainly this machine: an address in 127.0.0.0/8 written as four decimal numbers, the same mapped
// into IPv6, ::1, or "localhost" in upper or lower case. Any other name may lead anywhere, whatever it begins with.
bool IsLoopback(const HostPort& host);

// One address of --listen.
struct ListenAddress {
  std::string address;    // in the form that gRPC takes
  std::string unix_path;  // empty: TCP
  std::string host;       // TCP: without brackets
  int port = 0;           // TCP
  bool loopback = true;   // reachable from this machine only
};

// Addresses separated by commas. InvalidArgument names the flag, the value and what is allowed.
absl::StatusOr<std::vector<ListenAddress>> ParseListen(const std::string& value);
// For a flag that takes one host:port. Errors as above.
absl::StatusOr<ListenAddress> ParseListenTcp(std::string_view flag, const std::string& value);

// Whether a server answers on a unix socket.
bool IsServed(const std::string& unix_path);

}  // namespace msprobe::server
