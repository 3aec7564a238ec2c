#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace msprobe::capture {

// The next offset in a device's memory that is aligned for every type.
constexpr size_t Aligned(size_t offset) { return (offset + 63) / 64 * 64; }

// Memory on a device that gathers results, and as much memory on the host (pinned, where the backend can). The results
// are copied to the host once, when the slab is submitted, and nobody waits.
//
// Reserve and write on the device; Submit; ask Arrived until it says so; read host(); Reset and start over.
//
// Not thread-safe. Under QuietDispatch; throws what libtorch throws.
class DeviceSlab {
 public:
  static constexpr size_t kBytes = size_t{1} << 20;

  explicit DeviceSlab(const c10::Stream& stream);

  // An offset for so many bytes, aligned for every type; nullopt: no room is left.
  std::optional<size_t> Reserve(size_t bytes);
  // A contiguous tensor on the device at an offset (of any type that divides it).
  at::Tensor View(size_t offset, c10::ScalarType type, c10::IntArrayRef sizes) const;

  // Copies the reserved part to the host, behind everything that the stream has been given so far, and marks the place.
  void Submit();
  bool Arrived() const { return event_.query(); }
  std::span<const std::byte> host() const { return {static_cast<const std::byte*>(host_.const_data_ptr()), used_}; }

  size_t used() const { return used_; }
  void Reset() { used_ = 0; }

 private:
  const c10::Stream stream_;
  const at::Tensor device_;
  const at::Tensor host_;
  c10::Event event_;
  size_t used_ = 0;
};

// Host memory that a device can copy into while the host goes on; where a backend has none, ordinary memory, into which
// its runtime may copy waiting.
at::Tensor PinnedMemory(size_t bytes);

}  // namespace msprobe::capture
