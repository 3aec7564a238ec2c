#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "rapidjson/document.h"

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
  // InvalidArgument: the token would go to another machine readable by all on the way.
  absl::Status CheckTarget(std::string_view target) const;
  // For a target. NotFound, InvalidArgument: a file and what is wrong with it; or as CheckTarget.
  absl::StatusOr<Opened> Open(std::string_view target) const;

  // The same files for a process with another working directory.
  ServerAccess Absolute() const;
};

// Of a configuration, an object or not: its fields server_ca, server_cert, server_key and server_token_file, else the
// environment's MSPROBE_SERVER_CA, MSPROBE_SERVER_CERT, MSPROBE_SERVER_KEY and MSPROBE_SERVER_TOKEN_FILE; an empty one
// is none. InvalidArgument: a field that is no text. No file is looked at.
absl::StatusOr<ServerAccess> ReadAccessPaths(const rapidjson::Value& config);

// The same of a configuration's text (empty: none). InvalidArgument names the field, the value and what is allowed,
// also where a file cannot be read now, or a token would go to one of `targets` in a way that Open refuses.
absl::StatusOr<ServerAccess> ReadServerAccess(std::string_view config_json, std::span<const std::string> targets);

}  // namespace msprobe::core
