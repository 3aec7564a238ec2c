#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::server {

// One address of --listen.
struct ListenAddress {
  std::string address;    // as gRPC takes it
  std::string unix_path;  // empty: TCP
  bool loopback = true;   // reachable from this machine only
};

// Splits at commas. InvalidArgument names the flag, the value and what is allowed.
absl::StatusOr<std::vector<ListenAddress>> ParseListen(const std::string& value);

// Of host:port: whether only this machine reaches it.
bool IsLoopback(const std::string& address);

// Whether somebody answers on a unix socket.
bool IsServed(const std::string& unix_path);

}  // namespace msprobe::server
