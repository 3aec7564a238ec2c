#include "agent/torch/device/device_slab.h"

#include <ATen/ATen.h>

#include <atomic>

namespace msprobe::capture {

at::Tensor PinnedMemory(size_t bytes) {
  static std::atomic<bool> has_pinned{true};
  const at::TensorOptions options = at::TensorOptions(c10::kByte).device(c10::kCPU);
  if (has_pinned) {
    try {
      return at::empty({static_cast<int64_t>(bytes)}, options.pinned_memory(true));
    } catch (const c10::NotImplementedError&) {
      has_pinned = false;
    }
  }
  return at::empty({static_cast<int64_t>(bytes)}, options);
}

DeviceSlab::DeviceSlab(const c10::Stream& stream)
    : stream_(stream),
      device_(at::empty({static_cast<int64_t>(kBytes)}, at::TensorOptions(c10::kByte).device(stream.device()))),
      host_(PinnedMemory(kBytes)),
      event_(stream.device_type()) {}

std::optional<size_t> DeviceSlab::Reserve(size_t bytes) {
  const size_t offset = Aligned(used_);
  if (offset + bytes > kBytes) return std::nullopt;
  used_ = offset + bytes;
  return offset;
}

at::Tensor DeviceSlab::View(size_t offset, c10::ScalarType type, c10::IntArrayRef sizes) const {
  const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  return device_.narrow(0, static_cast<int64_t>(offset), bytes).view(type).view(sizes);
}

void DeviceSlab::Submit() {
  const auto used = static_cast<int64_t>(used_);
  if (used > 0) host_.narrow(0, 0, used).copy_(device_.narrow(0, 0, used), true);
  event_.record(stream_);
}

}  // namespace msprobe::capture
