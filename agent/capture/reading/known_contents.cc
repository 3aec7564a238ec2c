#include "agent/capture/reading/known_contents.h"

#include <cstring>
#include <utility>

namespace msprobe::capture {
namespace {

size_t BytesOf(const stats::TensorView& view) {
  return static_cast<size_t>(view.element_count()) * stats::ElementSize(view.dtype);
}

}  // namespace

bool KnownContents::Covers(const stats::TensorView& view) {
  int64_t stride = 1;
  for (size_t i = view.sizes.size(); i-- > 0;) {
    if (view.sizes[i] != 1 && view.strides[i] != stride) return false;
    stride *= view.sizes[i];
  }
  const bool quantized = view.scale != 1 || view.zero_point != 0;
  return !view.conjugate && !view.negative && !quantized && BytesOf(view) >= kSmallest;
}

KnownContents::Content KnownContents::ContentOf(const stats::TensorView& view, uint32_t crc32) {
  Content content{.bytes = BytesOf(view), .crc32 = crc32, .dtype = view.dtype};
  const auto* const bytes = static_cast<const char*>(view.data);
  const size_t last = content.bytes - sizeof(uint64_t);
  for (size_t i = 0; i < kSamples; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + last * i / (kSamples - 1), sizeof(word));
    content.samples = (content.samples ^ word) * 0x9E3779B97F4A7C15u;
    content.samples ^= content.samples >> 29;
  }
  return content;
}

bool KnownContents::Find(const Content& content, core::Leaf& leaf) const {
  const absl::MutexLock lock(&mu_);
  const auto found = known_.find(content);
  if (found == known_.end()) return false;
  const bool is_wide = leaf.is_wide;
  leaf = found->second;
  leaf.is_wide = is_wide;
  return true;
}

void KnownContents::Keep(const Content& content, const core::Leaf& leaf) {
  const absl::MutexLock lock(&mu_);
  if (known_.size() < kMost) known_.emplace(content, leaf);
}

}  // namespace msprobe::capture
