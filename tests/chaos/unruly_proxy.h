#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace msprobe::server {

// For tests: a unix socket in front of another one, that cuts, delays and goes away.
// Threads: its own for each connection; every method from any.
class UnrulyProxy {
 public:
  UnrulyProxy(std::string listen, std::string forward, uint64_t seed) : forward_(std::move(forward)), random_(seed) {
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = Address(listen);
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) std::abort();
    if (::listen(listener_, 64) != 0) std::abort();
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~UnrulyProxy() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }

  // Connections end after so many bytes at most, however many are under way; 0: they do not.
  void CutAfter(uint64_t bytes) { cut_after_ = bytes; }
  // Each piece that passes waits so long.
  void Delay(absl::Duration delay) { delay_ms_ = absl::ToInt64Milliseconds(delay); }
  // Every connection ends, and new ones end at once, until it is back.
  void Gone(bool gone) { gone_ = gone; }
  uint64_t cuts() const { return cuts_; }

 private:
  static sockaddr_un Address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    return address;
  }

  void Accept() {
    while (!stop_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (poll(&waiting, 1, 50) <= 0) continue;
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      const uint64_t limit = cut_after_;
      const uint64_t budget = limit == 0 ? UINT64_MAX : random_() % limit;
      threads_.emplace_back([this, client, budget] { Forward(client, budget); });
    }
  }

  void Forward(int client, uint64_t budget) {
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = Address(forward_);
    bool open = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    std::vector<char> piece(16 << 10);
    while (open && !stop_ && !gone_ && budget > 0) {
      pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
      if (poll(ends, 2, 50) < 0) break;
      for (int i = 0; i < 2 && open; ++i) {
        if (ends[i].revents == 0) continue;
        const ssize_t got = recv(ends[i].fd, piece.data(), piece.size(), 0);
        if (got <= 0) {
          open = false;
          break;
        }
        if (const int64_t delay = delay_ms_; delay > 0) absl::SleepFor(absl::Milliseconds(delay));
        const size_t passes = std::min<uint64_t>(budget, static_cast<uint64_t>(got));
        budget -= passes;
        for (size_t sent = 0; sent < passes && open;) {
          const ssize_t wrote = send(ends[1 - i].fd, piece.data() + sent, passes - sent, MSG_NOSIGNAL);
          open = wrote > 0;
          sent += open ? static_cast<size_t>(wrote) : 0;
        }
      }
    }
    if (budget == 0 || gone_) ++cuts_;
    close(client);
    close(server);
  }

  const std::string forward_;
  std::mt19937_64 random_;  // of the acceptor
  int listener_ = -1;
  std::atomic<bool> stop_{false}, gone_{false};
  std::atomic<uint64_t> cut_after_{0}, cuts_{0};
  std::atomic<int64_t> delay_ms_{0};
  std::vector<std::thread> threads_;  // of the acceptor, until it has ended
  std::thread acceptor_;
};

}  // namespace msprobe::server
