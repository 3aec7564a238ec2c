#pragma once

#include <atomic>
#include <cstdint>

namespace msprobe::capture {

// Numbers the backward passes over one forward call, from 0 in each step.
//
// Threads: any.
class PassCount {
 public:
  // Another pass begins: its number.
  uint32_t Next(uint32_t step) {
    uint64_t seen = seen_.load(std::memory_order_relaxed);
    uint64_t next = 0;
    do {
      next = Step(seen) == step ? seen + 1 : uint64_t{step} << 32 | 1;
    } while (!seen_.compare_exchange_weak(seen, next, std::memory_order_relaxed));
    return Passes(next) - 1;
  }
  // The number of the pass that began last.
  uint32_t Latest(uint32_t step) const {
    const uint64_t seen = seen_.load(std::memory_order_relaxed);
    return Step(seen) == step && Passes(seen) > 0 ? Passes(seen) - 1 : 0;
  }

 private:
  static uint32_t Step(uint64_t seen) { return static_cast<uint32_t>(seen >> 32); }
  static uint32_t Passes(uint64_t seen) { return static_cast<uint32_t>(seen); }

  std::atomic<uint64_t> seen_{0};  // the step, and how many passes it has
};

}  // namespace msprobe::capture
