#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"

namespace msprobe::core {

// How a process shows a server that it may stream to it, and knows that it is the right one: paths of files, which are
// read at every connection, so that what they hold can be replaced while the program runs.
struct ServerAccess {
  std::string ca;          // PEM; "system": the roots of this machine. Empty: no TLS
  std::string cert, key;   // PEM; both or neither, with ca
  std::string token_file;  // whose first word is the token

  struct Opened {
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    std::string token;  // empty: none
  };
  // NotFound, InvalidArgument: a file and what is wrong with it.
  absl::StatusOr<Opened> Open() const;
};

// The fields server_ca, server_cert, server_key and server_token_file of a configuration (empty text: none), else the
// environment's MSPROBE_SERVER_CA, MSPROBE_SERVER_CERT, MSPROBE_SERVER_KEY and MSPROBE_SERVER_TOKEN_FILE.
// InvalidArgument names the field, the value and what is allowed, also where a file cannot be read now.
absl::StatusOr<ServerAccess> ReadServerAccess(std::string_view config_json);

}  // namespace msprobe::core
