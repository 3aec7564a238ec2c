#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::server {

// How fast agents may send while memory is short, because they send faster than the disk takes it away.
//
// When a look finds more than three quarters of the write memory in use, all streams together may send 64 MiB/s, and
// half as much with every further look that finds it so. When a look finds less than half in use, they may send twice
// as much, and beyond 256 MiB/s as much as they like. HTTP/2's flow control would hold them too, but only when no
// memory is left. Threads: one.
class Throttle {
 public:
  static constexpr uint64_t kFirst = uint64_t{64} << 20;
  static constexpr uint64_t kMax = uint64_t{256} << 20;
  static constexpr uint64_t kMinOfAStream = uint64_t{64} << 10;

  // limit: bytes that may be written and not yet in files.
  explicit Throttle(uint64_t limit) : limit_(limit) {}

  // Call about once a second. Bytes a second of each of `streams`; 0: no limit.
  uint64_t Look(uint64_t used, size_t streams) {
    if (used > limit_ / 4 * 3) {
      total_ = total_ == 0 ? kFirst : total_ / 2 + 1;
    } else if (used < limit_ / 2 && total_ != 0) {
      total_ = total_ >= kMax / 2 ? 0 : total_ * 2;
    }
    if (total_ == 0) return 0;
    const uint64_t each = total_ / (streams == 0 ? 1 : streams);
    return each < kMinOfAStream ? kMinOfAStream : each;
  }

 private:
  const uint64_t limit_;
  uint64_t total_ = 0;  // 0: no limit
};

}  // namespace msprobe::server
