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

// A unix socket for a gRPC server that knows the user at the other end of each connection. gRPC does not know the user,
// so this class accepts the connections itself and hands each to gRPC through a door: an acceptor with credentials of
// its own, which serves one user.
//
// A user keeps the same door for good. When every door has a user, further users share the last one, which names no
// user.
// Threads: one of its own from Serve to destruction.
class UnixListener {
 public:
  static constexpr size_t kDoors = 256;
  // Enough for a socket that only the server's user and root can reach.
  static constexpr size_t kPrivateDoors = 3;

  // Makes the credentials of one door. `user` is set when the user's first connection comes.
  using Credentials = std::function<std::shared_ptr<grpc::ServerCredentials>(std::shared_ptr<const SocketUser> user)>;

  // Binds the path for the server that `builder` will build. The permissions hold before anybody can connect. A socket
  // that no server serves is replaced. Unavailable: another server answers there, or the path cannot be bound.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Bind(const std::string& path, mode_t mode,
                                                            grpc::ServerBuilder& builder,
                                                            const Credentials& credentials);
  // Ends the thread and removes the path.
  ~UnixListener();

  // Begins to accept. Call when the gRPC server has started.
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
  const int ending_;  // an event descriptor: once it is readable, the thread ends
  bool bound_ = false;
  std::vector<Door> doors_;
  std::map<uid_t, size_t> door_of_user_;  // used by the thread alone
  std::thread thread_;
};

}  // namespace msprobe::server
