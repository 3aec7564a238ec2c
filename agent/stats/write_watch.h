#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace msprobe::stats {

// Whether host memory was written since it was armed, known from the kernel: write-protected pages whose first write
// clears the protection without anybody being told or stopped (userfaultfd's UFFD_FEATURE_WP_ASYNC, asked by
// PAGEMAP_SCAN; both since Linux 6.7). It sees every write by instructions of this process, whoever made it and however
// (views, numpy, custom kernels, other threads), and every system call that stores into the memory. It does not see a
// device's DMA into pages it had pinned before, nor other processes' writes to shared memory: arm neither.
//
// A read costs nothing more; the first write to each page after Arm costs a fault, well under a microsecond.
//
// Invariants:
// 1. Written is false only if no byte of the range was stored to since Arm returned true. Memory that was unmapped and
//    mapped anew is written; memory that is not there now must not be asked for.
// 2. In a forked child everything is written.
//
// Thread-safe; each call is one or two system calls.
class WriteWatch {
 public:
  // A range that is armed. The bytes before its first and behind its last whole page share their pages with others, so
  // they are remembered by a hash (of under two pages).
  struct Range {
    std::span<const std::byte> memory;
    uint64_t edges = 0;
  };

  // Null where the kernel cannot, or may not (seccomp): then nothing can be armed.
  static std::unique_ptr<WriteWatch> Create();
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  // Private anonymous memory (what malloc gives), at least kSmallest bytes. False: it could not be armed. Arming again
  // forgets what was written, also for other ranges that overlap.
  bool Arm(std::span<const std::byte> memory, Range* range) const;
  // Whether a byte of `part`, which lies in `range`, may have been written since.
  bool Written(const Range& range, std::span<const std::byte> part) const;
  // Ends the watch. Nothing happens where the memory is gone.
  void Disarm(const Range& range) const;

  static constexpr size_t kSmallest = size_t{64} << 10;

 private:
  WriteWatch(int faults, int pagemap);

  const int faults_;   // userfaultfd
  const int pagemap_;  // /proc/self/pagemap
  const pid_t process_;
};

}  // namespace msprobe::stats
