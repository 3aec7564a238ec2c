#pragma once

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"

namespace msprobe::stats {

// Memory of this process that the program may free at any moment. The kernel copies it piece by piece, and says where
// it is gone: a plain read would end the process there. Costs about as much again as reading in place.
//
// Threads: one at a time.
class FleetingMemory {
 public:
  // Called with each piece before it is copied. False: nothing more need be copied.
  using Prepare = absl::FunctionRef<bool(std::span<const std::byte> piece)>;

  // room: for the copies, and outlives this, as `prepare` does. Of kRoom they lie in the cache of a core.
  FleetingMemory(std::span<const std::byte> memory, std::span<std::byte> room, Prepare prepare)
      : end_(memory.data() + memory.size()), room_(room), prepare_(prepare) {}
  static constexpr size_t kRoom = size_t{256} << 10;

  // A copy of these bytes of the memory, until the next call; at most as many as there is room for. Fastest from front
  // to back. What could not be copied is 0.
  const void* At(const void* from, size_t bytes);

  // Everything that At gave was copied. False stays.
  bool is_whole() const { return is_whole_; }

  // Copies a few bytes. False: they are gone.
  static bool Copy(std::span<const std::byte> from, std::byte* to);

 private:
  const std::byte* const end_;
  const std::span<std::byte> room_;
  const Prepare prepare_;
  const std::byte* copied_from_ = nullptr;
  size_t copied_ = 0;
  bool is_whole_ = true;
};

}  // namespace msprobe::stats
