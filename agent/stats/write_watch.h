#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace msprobe::stats {

// Tells whether host memory was written since it was armed. The kernel knows: it write-protects the pages, and the
// first write to a page clears the protection without telling or stopping anybody (userfaultfd's UFFD_FEATURE_WP_ASYNC,
// read by PAGEMAP_SCAN; both since Linux 6.7). The watch sees every write by this process, from any thread and by any
// means (views, numpy, custom kernels), and every system call that stores into the memory. It does not see DMA of a
// device into pages that were pinned before, nor writes of other processes to shared memory, so neither may be armed.
//
// Reads cost nothing extra. The first write to each page after Arm costs a fault, well under a microsecond.
//
// Invariants:
// 1. Written is false only if no byte of the range was stored to since Arm returned true. Memory that was unmapped and
//    mapped again counts as written. The memory must be mapped when Written is called.
// 2. In a forked child everything counts as written.
//
// Threads: any. Each call is one or two system calls.
class WriteWatch {
 public:
  // An armed range. Its first and last bytes may share their pages with other memory. They are watched by a hash, of
  // less than two pages.
  struct Range {
    std::span<const std::byte> memory;
    uint64_t edges = 0;  // the hash
  };

  // Null: the kernel cannot do this or must not (seccomp).
  static std::unique_ptr<WriteWatch> Create();
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  // `memory` must be private and anonymous, as from malloc, and have at least kSmallest bytes. False: it could not be
  // armed. Arming again forgets earlier writes, also for other ranges that overlap.
  bool Arm(std::span<const std::byte> memory, Range* range) const;
  // Arm piece by piece, for memory that another thread may free or write meanwhile: Begin watches the edges, and
  // Protect those pages of `range` that begin in `part`. Each page shall be protected once, and before any of its bytes
  // is read. False: the memory is gone, or cannot be watched.
  bool Begin(std::span<const std::byte> memory, Range* range) const;
  bool Protect(const Range& range, std::span<const std::byte> part) const;
  // Whether any byte of `part`, which lies in `range`, may have been written since.
  bool Written(const Range& range, std::span<const std::byte> part) const;
  // Whether `memory` is surely private and anonymous. False too on a kernel that cannot be asked (before Linux 6.11).
  bool IsPrivate(std::span<const std::byte> memory) const;
  // Ends the watch. The memory may be gone.
  void Disarm(const Range& range) const;

  static constexpr size_t kSmallest = size_t{64} << 10;

 private:
  WriteWatch(int faults, int pagemap, int maps);

  bool Register(std::span<const std::byte> memory) const;

  const int faults_;   // userfaultfd
  const int pagemap_;  // /proc/self/pagemap
  const int maps_;     // /proc/self/maps
  const pid_t process_;
};

}  // namespace msprobe::stats
