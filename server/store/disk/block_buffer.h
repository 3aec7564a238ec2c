#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "server/format/storage/extent.h"

namespace msprobe::server {

// Memory that begins at a multiple of Extent::kAlignment, as the disk asks of what it fetches by itself.
// Threads: one at a time.
class BlockBuffer {
 public:
  // At least `size` bytes, of no particular value; the same memory as long as it is large enough.
  char* Take(size_t size) {
    if (size > capacity_) {
      const size_t capacity = (size + Extent::kAlignment - 1) / Extent::kAlignment * Extent::kAlignment;
      memory_.reset(static_cast<char*>(std::aligned_alloc(Extent::kAlignment, capacity)));
      capacity_ = memory_ == nullptr ? 0 : capacity;
      if (memory_ == nullptr) throw std::bad_alloc();
    }
    return memory_.get();
  }
  static bool IsAligned(const char* bytes) { return reinterpret_cast<uintptr_t>(bytes) % Extent::kAlignment == 0; }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t capacity_ = 0;
};

}  // namespace msprobe::server
