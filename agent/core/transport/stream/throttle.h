#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace msprobe::core {

// Keeps what is sent to the rate that a server asks for: every message is followed by a pause in proportion to its
// size.
//
// Threads: one.
class Throttle {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: no limit.
  void SetRate(uint64_t bytes_per_second) {
    bytes_per_second_ = bytes_per_second;
    if (bytes_per_second == 0) until_ = Clock::time_point::min();
  }

  void Sent(size_t bytes, Clock::time_point now) {
    if (bytes == 0 || bytes_per_second_ == 0) return;
    const std::chrono::duration<double> pause(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
    until_ = now + std::chrono::duration_cast<Clock::duration>(pause);
  }

  // Nothing is sent before this time.
  Clock::time_point until() const { return until_; }

 private:
  uint64_t bytes_per_second_ = 0;
  Clock::time_point until_ = Clock::time_point::min();
};

}  // namespace msprobe::core
