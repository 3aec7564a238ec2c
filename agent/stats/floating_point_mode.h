#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace msprobe::stats {

// As long as this object lives, its thread computes with IEEE defaults (denormals kept, round to nearest, no traps),
// even if the program has set others, for example by torch.set_flush_denormal. The destructor restores the mode and the
// sticky flags.
class FloatingPointMode {
 public:
#if defined(__SSE2__)
  FloatingPointMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatingPointMode() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  FloatingPointMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    if (saved_ != 0) asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~FloatingPointMode() {
    if (saved_ != 0) asm volatile("msr fpcr, %0" : : "r"(saved_));
  }
#else
  FloatingPointMode() = default;
#endif
  FloatingPointMode(const FloatingPointMode&) = delete;
  FloatingPointMode& operator=(const FloatingPointMode&) = delete;

 private:
#if defined(__SSE2__)
  uint32_t saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

}  // namespace msprobe::stats
