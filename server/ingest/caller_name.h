#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

namespace msprobe::server {

// The property of a call's AuthContext that holds the name of its token.
inline constexpr char kTokenName[] = "msprobe-token-name";

// Who calls: "token NAME" where the call shows one, else the address without the port: "ipv4:10.0.0.1". Everybody on a
// unix socket is "unix:".
inline std::string CallerName(const grpc::ServerContextBase& call) {
  const auto names = call.auth_context()->FindPropertyValues(kTokenName);
  if (!names.empty()) return "token " + std::string(names.front().data(), names.front().size());
  std::string address = call.peer();
  if (address.starts_with("unix:")) return "unix:";
  return address.substr(0, address.rfind(':'));
}

}  // namespace msprobe::server
