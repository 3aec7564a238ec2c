#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace msprobe::stats {

// Threads that may take a part of a reading, so that a large tensor is read by more than one core.
class Executor {
 public:
  virtual ~Executor() = default;
  // Calls body(0) to body(parts - 1), each once, on the caller's thread and on any others, in any order. Returns when
  // all have returned. `body` throws nothing. parts >= 1. Any thread.
  virtual void Run(size_t parts, absl::FunctionRef<void(size_t part)> body) = 0;
};

}  // namespace msprobe::stats
