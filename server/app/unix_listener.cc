#include "server/app/unix_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "server/access/listen_address.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

// The pause before the next attempt when no descriptor is free for another connection.
constexpr std::chrono::milliseconds kNoDescriptor(100);

absl::Status CannotListen(const std::string& path) {
  return absl::UnavailableError(Cat("--listen=unix:", path, ": cannot listen there: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Bind(const std::string& path, mode_t mode,
                                                                 grpc::ServerBuilder& builder,
                                                                 const Credentials& credentials) {
  if (IsServed(path)) return absl::UnavailableError(Cat("--listen=unix:", path, ": another server answers there"));
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) unlink(path.c_str());
  const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  std::unique_ptr<UnixListener> listener(new UnixListener(path, listening, eventfd(0, EFD_CLOEXEC)));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return CannotListen(path);
  listener->bound_ = true;
  // Nobody can connect before listen.
  if (chmod(path.c_str(), mode) != 0 || listen(listening, SOMAXCONN) != 0) return CannotListen(path);
  const size_t doors = (mode & 077) == 0 ? kPrivateDoors : kDoors;
  for (size_t i = 0; i < doors; ++i) {
    auto user = std::make_shared<SocketUser>(-1);
    auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials(user));
    listener->doors_.push_back({std::move(user), std::move(acceptor)});
  }
  return listener;
}

UnixListener::~UnixListener() {
  if (thread_.joinable()) {
    eventfd_write(ending_, 1);
    thread_.join();
  }
  close(ending_);
  if (bound_) unlink(path_.c_str());
  if (listening_ >= 0) close(listening_);
}

void UnixListener::Serve() {
  thread_ = std::thread([this] { Accept(); });
}

void UnixListener::Accept() {
  std::array<pollfd, 2> ready{{{listening_, POLLIN, 0}, {ending_, POLLIN, 0}}};
  while (true) {
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    const int connection = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kNoDescriptor);
      continue;
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
    handed.listener_fd = listening_;
    handed.fd = connection;
    DoorOf(connection).acceptor->HandleNewConnection(&handed);
  }
}

UnixListener::Door& UnixListener::DoorOf(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return doors_.back();
  auto [found, is_new] = door_of_user_.try_emplace(peer.uid, door_of_user_.size());
  if (!is_new) return doors_[found->second];
  if (found->second + 1 >= doors_.size()) {
    LogWarning("the socket {} has had {} users already; runs of user {} and further ones belong to nobody", path_,
               doors_.size() - 1, peer.uid);
    found->second = doors_.size() - 1;
    return doors_.back();
  }
  *doors_[found->second].user = peer.uid;
  return doors_[found->second];
}

}  // namespace msprobe::server
