#include "agent/capture/reading/known_contents.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace msprobe::capture {
namespace {

size_t BytesOf(const stats::TensorView& view) {
  return static_cast<size_t>(view.element_count()) * stats::ElementSize(view.dtype);
}

}  // namespace

bool KnownContents::Covers(const stats::TensorView& view) {
  int64_t reach = 1;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.strides[i] < 0) return false;
    reach += (view.sizes[i] - 1) * view.strides[i];
  }
  const bool quantized = view.scale != 1 || view.zero_point != 0;
  return reach == view.element_count() && !view.conjugate && !view.negative && !quantized && BytesOf(view) >= kSmallest;
}

KnownContents::Sight KnownContents::SightOf(const stats::TensorView& view) {
  Sight sight{.bytes = BytesOf(view), .dtype = view.dtype};
  const auto* const bytes = static_cast<const char*>(view.data);
  const size_t last = sight.bytes - sizeof(uint64_t);
  for (size_t i = 0; i < kSamples; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + last * i / (kSamples - 1), sizeof(word));
    sight.samples = (sight.samples ^ word) * 0x9E3779B97F4A7C15u;
    sight.samples ^= sight.samples >> 29;
  }
  return sight;
}

bool KnownContents::MayKnow(const Sight& sight) const {
  const absl::MutexLock lock(&mu_);
  return known_.contains(sight);
}

bool KnownContents::Find(const Sight& sight, uint32_t crc32, core::Leaf& leaf) const {
  const absl::MutexLock lock(&mu_);
  const auto seen = known_.find(sight);
  if (seen == known_.end()) return false;
  const auto found = std::find_if(seen->second.begin(), seen->second.end(),
                                  [&](const core::Leaf& each) { return each.crc32 == crc32; });
  if (found == seen->second.end()) return false;
  const bool is_wide = leaf.is_wide;
  leaf = *found;
  leaf.is_wide = is_wide;
  return true;
}

void KnownContents::Keep(const Sight& sight, const core::Leaf& leaf) {
  const absl::MutexLock lock(&mu_);
  if (kept_ >= kMost) return;
  known_[sight].push_back(leaf);
  ++kept_;
}

}  // namespace msprobe::capture
