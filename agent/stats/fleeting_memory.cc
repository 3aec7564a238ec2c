#include "agent/stats/fleeting_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace msprobe::stats {

bool FleetingMemory::Copy(std::span<const std::byte> from, std::byte* to) {
  if (from.empty()) return true;
  const iovec copy{.iov_base = to, .iov_len = from.size()};
  const iovec of{.iov_base = const_cast<std::byte*>(from.data()), .iov_len = from.size()};
  return process_vm_readv(getpid(), &copy, 1, &of, 1, 0) == static_cast<ssize_t>(from.size());
}

const void* FleetingMemory::At(const void* from, size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(from);
  if (copied_from_ == nullptr || first < copied_from_ || first + bytes > copied_from_ + copied_) {
    copied_from_ = first;
    copied_ = std::min(room_.size(), static_cast<size_t>(end_ - first));
    const std::span piece(first, copied_);
    if (!is_whole_ || !prepare_(piece) || !Copy(piece, room_.data())) {
      is_whole_ = false;
      std::memset(room_.data(), 0, copied_);
    }
  }
  return room_.data() + (first - copied_from_);
}

}  // namespace msprobe::stats
