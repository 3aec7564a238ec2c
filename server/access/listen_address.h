#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::server {

// host[:port] or [IPv6 address][:port], as a Host header, a flag and a URL have it.
struct HostPort {
  std::string host;  // a name or an address, without brackets
  std::optional<int> port;
};

// None: something else, with a user, a path, a space or a second colon.
std::optional<HostPort> ParseHostPort(std::string_view text);

// Whether a host is this machine and no other: an address of 127.0.0.0/8 written with four decimal numbers, ::1, one of
// the former mapped into IPv6, or "localhost" in any case. Every other name may lead anywhere, whatever it begins with.
bool IsLoopback(const HostPort& host);

// One address of --listen.
struct ListenAddress {
  std::string address;    // as gRPC takes it
  std::string unix_path;  // empty: TCP
  std::string host;       // TCP: without brackets
  int port = 0;           // TCP
  bool loopback = true;   // reachable from this machine only
};

// Splits at commas. InvalidArgument names the flag, the value and what is allowed.
absl::StatusOr<std::vector<ListenAddress>> ParseListen(const std::string& value);
// Of a flag that takes one host:port.
absl::StatusOr<ListenAddress> ParseListenTcp(std::string_view flag, const std::string& value);

// Whether somebody answers on a unix socket.
bool IsServed(const std::string& unix_path);

}  // namespace msprobe::server
