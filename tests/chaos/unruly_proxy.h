#pragma once

#include <sys/un.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace msprobe::server {

// For tests: a unix socket in front of another one, that knows bytes only. It cuts anywhere, delays and goes away.
// Threads: its own for each connection; every method from any.
class UnrulyProxy {
 public:
  UnrulyProxy(const std::string& listen, std::string forward, uint64_t seed);
  ~UnrulyProxy();

  // Each new connection ends after fewer bytes than this, both ways counted; 0: it does not.
  void CutAfter(uint64_t bytes) { cut_after_ = bytes; }
  // Each piece that passes waits so long.
  void Delay(absl::Duration delay) { delay_ms_ = absl::ToInt64Milliseconds(delay); }
  // Every connection ends, and new ones end at once, until it is back.
  void Gone(bool gone) { gone_ = gone; }
  // Connections that it ended.
  uint64_t cuts() const { return cuts_; }

 private:
  void Accept();
  void Forward(int client, uint64_t budget);
  // At most `budget` bytes of what has come from one end, to the other. False: one of them is over.
  bool Pass(int from, int to, uint64_t* budget, std::vector<char>& piece);

  const std::string forward_;
  std::mt19937_64 random_;  // of the acceptor
  int listener_ = -1;
  std::atomic<bool> stop_{false}, gone_{false};
  std::atomic<uint64_t> cut_after_{0}, cuts_{0};
  std::atomic<int64_t> delay_ms_{0};
  std::vector<std::thread> connections_;  // of the acceptor, until it has ended
  std::thread acceptor_;
};

}  // namespace msprobe::server
