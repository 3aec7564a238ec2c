#pragma once

#include <string>

namespace msprobe::server {

// Who calls, as far as this server can tell.
struct Caller {
  // Whom a run belongs to that this one makes: "token trainers", "certificate CN=gpu1" or, on a unix socket, "uid
  // 1000". Empty: nothing tells this one from others.
  std::string identity;
  // Of whom the limits for one peer are: the identity, else the address without its port ("ipv4:10.0.0.1").
  std::string peer;
  // A token of the role admin; where no tokens are asked for, root or the user of this server on a unix socket.
  bool is_admin = false;
};

}  // namespace msprobe::server
