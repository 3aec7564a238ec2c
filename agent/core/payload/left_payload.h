#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "agent/core/content_hash.h"
#include "agent/core/payload/mapped_memory.h"
#include "agent/core/record.h"

namespace msprobe::core {

// A payload that a dead process left: the bytes, or only their name if the bytes died with the process.
//
// Threads: one.
class LeftPayload final : public Payload {
 public:
  // `memory` empty: the bytes are gone. `hash` absent: it was not computed yet.
  LeftPayload(MappedMemory memory, uint64_t size, const std::optional<PayloadDigest>& hash)
      : memory_(std::move(memory)), size_(size) {
    if (hash.has_value()) name()->Set(*hash);
  }

  std::span<std::byte> bytes() override { return {memory_.get(), memory_.empty() ? 0 : size_}; }
  size_t size() override { return size_; }
  bool counted() const override { return !memory_.empty(); }
  std::optional<uint64_t> shared_offset() const override { return memory_.shared_offset(); }
  bool intact() override { return !memory_.empty(); }

 private:
  const MappedMemory memory_;
  const uint64_t size_;
};

}  // namespace msprobe::core
