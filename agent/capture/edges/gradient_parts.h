#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/edges/producers.h"
#include "agent/core/pool.h"

namespace msprobe::capture {

// Where the framework adds gradients up: an input of a node of the backward graph, in one pass. The node is an identity
// and is never looked at; it lives as long as its pass.
struct GradientSlot {
  int64_t pass = 0;
  const void* node = nullptr;
  uint32_t index = 0;

  friend bool operator==(const GradientSlot&, const GradientSlot&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const GradientSlot& slot) {
    return H::combine(std::move(h), slot.pass, slot.node, slot.index);
  }
};

// Which record gave a gradient to a slot. A sum is a tensor of the framework's own, or the first part with the others
// added in place, so Producers does not know it, or knows the first part alone. Of several records the last is told:
// modules end after what is inside of them, so it is the module that gave the whole sum where there is one.
//
// Bounded: kMaxSlots of a step. What found no room is not told. Thread-safe.
class GradientParts {
 public:
  static constexpr size_t kMaxSlots = size_t{1} << 16;

  explicit GradientParts(size_t max_slots = kMaxSlots) : max_slots_(max_slots) {}

  // A record gave the gradient that is leaf `part.leaf` of its fragment `part.ordinal`.
  void Add(const GradientSlot& slot, const Producer& part);

  // Where a gradient that arrives at `slot` came from. by_memory: as Producers saw it. The same or a view of an output
  // is that output, whoever else gave; else it is a sum, if a record gave a part.
  Producer Resolve(const GradientSlot& slot, const Producer& by_memory) const;

  void EndStep();

 private:
  const size_t max_slots_;
  mutable absl::Mutex mu_;
  core::PooledMap<GradientSlot, Producer> last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
