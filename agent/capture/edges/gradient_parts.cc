#include "agent/capture/edges/gradient_parts.h"

namespace msprobe::capture {

using core::EdgeKind;

void GradientParts::Add(const GradientSlot& slot, const Producer& part) {
  absl::MutexLock lock(&mu_);
  if (last_.size() >= max_slots_ && !last_.contains(slot)) return;
  last_[slot] = {.kind = EdgeKind::kSum, .ordinal = part.ordinal, .leaf = part.leaf};
}

Producer GradientParts::Resolve(const GradientSlot& slot, const Producer& by_memory) const {
  if (by_memory.kind != EdgeKind::kOutside && by_memory.kind != EdgeKind::kChanged) return by_memory;
  absl::MutexLock lock(&mu_);
  const auto found = last_.find(slot);
  return found == last_.end() ? by_memory : found->second;
}

void GradientParts::EndStep() {
  absl::MutexLock lock(&mu_);
  last_.clear();
}

}  // namespace msprobe::capture
