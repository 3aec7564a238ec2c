#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "agent/capture/reading/memory_owner.h"
#include "agent/core/record.h"
#include "agent/stats/write_watch.h"

namespace msprobe::capture {

// The memory of a tensor whose bytes were hashed before and that nobody has written since: announced by its hash, and
// read only if the server lacks it. Then it may have been written meanwhile; intact() says so, and the server takes no
// bytes that do not have the hash.
//
// Threads: one, the sender, but for the construction. Keeps the memory alive from the first call of bytes() on.
class WatchedPayload final : public core::Payload {
 public:
  // `generation` counts the armings of `range`, which tells of the present one.
  WatchedPayload(std::shared_ptr<core::PayloadName> name, std::shared_ptr<const MemoryOwner> owner,
                 std::span<const std::byte> memory, std::shared_ptr<const stats::WriteWatch> watch,
                 stats::WriteWatch::Range range, std::shared_ptr<const std::atomic<uint64_t>> generation)
      : Payload(std::move(name)),
        owner_(std::move(owner)),
        memory_(memory),
        watch_(std::move(watch)),
        range_(range),
        generation_(std::move(generation)),
        armed_as_(generation_->load()) {}

  size_t size() override { return memory_.size(); }
  bool counted() const override { return false; }
  bool intact() override {
    if (held_ == nullptr) held_ = owner_->Hold();
    return held_ != nullptr && *generation_ == armed_as_ && !watch_->Written(range_, memory_) &&
           *generation_ == armed_as_;
  }
  // Nothing, once the memory is gone.
  std::span<std::byte> bytes() override {
    if (held_ == nullptr) held_ = owner_->Hold();
    if (held_ == nullptr) return {};
    return {const_cast<std::byte*>(memory_.data()), memory_.size()};
  }

 private:
  const std::shared_ptr<const MemoryOwner> owner_;
  const std::span<const std::byte> memory_;
  const std::shared_ptr<const stats::WriteWatch> watch_;
  const stats::WriteWatch::Range range_;
  const std::shared_ptr<const std::atomic<uint64_t>> generation_;
  const uint64_t armed_as_;
  std::shared_ptr<const void> held_;
};

}  // namespace msprobe::capture
