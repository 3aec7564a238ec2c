#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/app/authorizer.h"

namespace msprobe::server {

// A unix socket that a gRPC server serves, and that knows the user at the other end of each connection, which gRPC does
// not: it accepts connections itself and hands them over through one of several doors, of which each has one user and
// credentials of its own.
//
// A user keeps his door for good. When all have one, further users share the last, which names nobody.
// Threads: one of its own from Serve to destruction.
class UnixListener {
 public:
  static constexpr size_t kDoors = 256;
  // Where only the server's user (and root) reaches the socket.
  static constexpr size_t kPrivateDoors = 3;

  // The credentials of connections of one user, who is known when the first of them comes.
  using Credentials = std::function<std::shared_ptr<grpc::ServerCredentials>(std::shared_ptr<const SocketUser> user)>;

  // Binds the path, with these permissions from the first moment at which anybody can connect; a socket that nobody
  // serves is replaced. The server that `builder` builds is served through it. Unavailable: another server answers
  // there, or it cannot be.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Bind(const std::string& path, mode_t mode,
                                                            grpc::ServerBuilder& builder,
                                                            const Credentials& credentials);
  // Ends the thread and removes the path.
  ~UnixListener();

  // The server has been started.
  void Serve();

 private:
  struct Door {
    std::shared_ptr<SocketUser> user;
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  };

  UnixListener(std::string path, int listening, int ending)
      : path_(std::move(path)), listening_(listening), ending_(ending) {}
  void Accept();
  Door& DoorOf(int connection);

  const std::string path_;
  const int listening_;
  const int ending_;  // readable: the thread ends
  bool bound_ = false;
  std::vector<Door> doors_;
  std::map<uid_t, size_t> door_of_user_;  // of the thread
  std::thread thread_;
};

}  // namespace msprobe::server
