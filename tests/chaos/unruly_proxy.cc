#include "tests/chaos/unruly_proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"

namespace msprobe::server {
namespace {

constexpr int kLookEveryMs = 20;
constexpr size_t kPieceBytes = 16 << 10;

sockaddr_un Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

}  // namespace

UnrulyProxy::UnrulyProxy(const std::string& listen, std::string forward, uint64_t seed)
    : forward_(std::move(forward)), random_(seed), listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_un address = Address(listen);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) std::abort();
  if (::listen(listener_, 64) != 0) std::abort();
  acceptor_ = std::thread([this] { Accept(); });
}

UnrulyProxy::~UnrulyProxy() {
  stop_ = true;
  acceptor_.join();
  for (std::thread& connection : connections_) connection.join();
  close(listener_);
}

void UnrulyProxy::Accept() {
  while (!stop_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (poll(&waiting, 1, kLookEveryMs) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    const uint64_t limit = cut_after_;
    const uint64_t budget = limit == 0 ? UINT64_MAX : random_() % limit;
    connections_.emplace_back([this, client, budget] { Forward(client, budget); });
  }
}

void UnrulyProxy::Forward(int client, uint64_t budget) {
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = Address(forward_);
  bool open = !gone_ && connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  std::vector<char> piece(kPieceBytes);
  while (open && !stop_ && !gone_ && budget > 0) {
    pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    if (poll(ends, 2, kLookEveryMs) < 0) break;
    for (int i = 0; i < 2 && open; ++i) {
      if (ends[i].revents != 0) open = Pass(ends[i].fd, ends[1 - i].fd, &budget, piece);
    }
  }
  if (budget == 0 || gone_) ++cuts_;
  close(client);
  close(server);
}

bool UnrulyProxy::Pass(int from, int to, uint64_t* budget, std::vector<char>& piece) {
  const ssize_t got = recv(from, piece.data(), piece.size(), 0);
  if (got <= 0) return false;
  if (const int64_t delay = delay_ms_; delay > 0) absl::SleepFor(absl::Milliseconds(delay));
  const auto passes = static_cast<size_t>(std::min<uint64_t>(*budget, static_cast<uint64_t>(got)));
  *budget -= passes;
  for (size_t sent = 0; sent < passes;) {
    const ssize_t wrote = send(to, piece.data() + sent, passes - sent, MSG_NOSIGNAL);
    if (wrote <= 0) return false;
    sent += static_cast<size_t>(wrote);
  }
  return true;
}

}  // namespace msprobe::server
