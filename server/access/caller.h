#pragma once

#include <string>

namespace msprobe::server {

// Who makes a call, as far as this server can tell.
struct Caller {
  // The owner of every run that the caller creates: "token trainers", "certificate CN=gpu1" or, on a unix socket,
  // "uid 1000". Empty: the caller is anonymous.
  std::string identity;
  // The limits for one peer count by this: the identity, or else the address without its port ("ipv4:10.0.0.1").
  std::string peer;
  // The caller has a token with the role admin. On a server without tokens: root or the server's own user, on a unix
  // socket.
  bool is_admin = false;
};

}  // namespace msprobe::server
