#pragma once

#include <grpc/grpc_security_constants.h>
#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "server/access/caller.h"

namespace msprobe::server {

// Properties of a call's AuthContext, set by Authorizer.
inline constexpr char kTokenName[] = "msprobe-token-name";
inline constexpr char kSocketUser[] = "msprobe-socket-user";  // its number
inline constexpr char kIsAdmin[] = "msprobe-is-admin";

// The caller as far as the context tells. `peer` stays empty where only the call's address tells who it is.
inline Caller CallerOf(const grpc::AuthContext& context) {
  const auto property = [&](const char* name) {
    const auto values = context.FindPropertyValues(name);
    return values.empty() ? std::string() : std::string(values.front().data(), values.front().size());
  };
  Caller caller;
  caller.is_admin = !property(kIsAdmin).empty();
  for (const auto& [kind, name] : {std::pair("token ", property(kTokenName)),
                                   {"certificate ", property(GRPC_X509_SUBJECT_PROPERTY_NAME)},
                                   {"uid ", property(kSocketUser)}}) {
    if (caller.identity.empty() && !name.empty()) caller.identity = kind + name;
  }
  caller.peer = caller.identity;
  return caller;
}

inline Caller CallerOf(const grpc::ServerContextBase& call) {
  Caller caller = CallerOf(*call.auth_context());
  if (!caller.peer.empty()) return caller;
  caller.peer = call.peer();
  if (!caller.peer.starts_with("unix:")) caller.peer = caller.peer.substr(0, caller.peer.rfind(':'));
  return caller;
}

}  // namespace msprobe::server
