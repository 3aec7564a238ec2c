#include "server/format/tensor_file/paged_bytes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kHeld = 32 << 20;
constexpr uint64_t kLongest = 8 << 10;
constexpr uint64_t kShortest = 128;

}  // namespace

PagedBytes::PagedBytes(ByteSource& source, uint64_t streams)
    : source_(source),
      page_(std::clamp(std::bit_floor(kHeld / std::max<uint64_t>(streams, 1)), kShortest, kLongest)),
      limit_(kHeld / page_) {}

absl::Status PagedBytes::Copy(uint64_t offset, uint64_t size, char* to) {
  if (offset > source_.size() || size > source_.size() - offset) {
    return absl::OutOfRangeError(
        Cat("the file ends at byte ", source_.size(), "; elements lie at ", offset, "+", size));
  }
  if (size >= page_) return source_.ReadAt(offset, {to, size});
  while (size > 0) {
    const Slot* slot = nullptr;
    if (absl::Status status = Find(offset / page_, slot); !status.ok()) return status;
    const uint64_t within = offset % page_;
    const uint64_t part = std::min(size, page_ - within);
    std::memcpy(to, slot->bytes.data() + within, part);
    offset += part;
    to += part;
    size -= part;
  }
  return absl::OkStatus();
}

absl::Status PagedBytes::Find(uint64_t page, const Slot*& slot) {
  if (const auto found = places_.find(page); found != places_.end()) {
    slots_[found->second].used = true;
    slot = &slots_[found->second];
    return absl::OkStatus();
  }
  size_t at = slots_.size();
  if (at < limit_) {
    slots_.emplace_back();
  } else {
    while (slots_[hand_].used) {
      slots_[hand_].used = false;
      hand_ = (hand_ + 1) % limit_;
    }
    at = hand_;
    hand_ = (hand_ + 1) % limit_;
    places_.erase(slots_[at].page);
  }
  Slot& taken = slots_[at];
  taken.page = page;
  taken.used = true;
  taken.bytes.resize(std::min(page_, source_.size() - page * page_));
  if (absl::Status status = source_.ReadAt(page * page_, {taken.bytes.data(), taken.bytes.size()}); !status.ok()) {
    return status;
  }
  places_.emplace(page, static_cast<uint32_t>(at));
  slot = &taken;
  return absl::OkStatus();
}

}  // namespace msprobe::server
