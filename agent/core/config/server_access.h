#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace grpc {
class ChannelCredentials;
}  // namespace grpc

namespace msprobe::core {

// How a process shows a server that it may stream to it, and how it knows that it is the right server. The members are
// paths of files. They are read at every connection, so the files can be replaced while the program runs.
struct ServerAccess {
  std::string ca = {};              // PEM; "system": the roots of this machine. Empty: no TLS
  std::string cert = {}, key = {};  // PEM; both or neither, with ca
  std::string token_file = {};      // the first word of the file is the token

  struct Opened {
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    std::string token;  // empty: none
  };
  // InvalidArgument: the token would go to another machine, readable by all on the way.
  absl::Status CheckTarget(std::string_view target) const;
  // Reads the files for a connection. NotFound, InvalidArgument: a file and what is wrong with it; or as CheckTarget.
  absl::StatusOr<Opened> Open(std::string_view target) const;
  // InvalidArgument: the files do not go together, one cannot be read now, or Open refuses one of the targets.
  absl::Status Check(std::span<const std::string> targets) const;

  // The same files for a process with another working directory.
  ServerAccess Absolute() const;
};

}  // namespace msprobe::core
