#pragma once

#include <memory>

namespace msprobe::capture {

// What owns memory that is remembered, known without keeping it alive.
//
// Threads: any.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;

  // The memory is freed.
  virtual bool expired() const = 0;
  // Keeps the memory while the answer lives. Null: it is freed.
  virtual std::shared_ptr<const void> Hold() const = 0;
};

}  // namespace msprobe::capture
