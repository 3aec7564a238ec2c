#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/core/mapped_memory.h"
#include "agent/core/mutex.h"

namespace msprobe::core {

// Memory in a file that a server on this machine can read: "msprobe-" and 32 hexadecimal digits, in /dev/shm.
//
// 1. A piece has its pages before it is given out, so that touching it never fails for want of room (SIGBUS).
// 2. Half of the file system stays free for the program, and one under 1 GiB (Docker's default is 64 MiB) is not used:
//    others, NCCL and DataLoader among them, do not survive a full one.
// 3. Freed pieces go back to the system.
// 4. The file is locked (flock) while its process lives and goes by name with EndSharing or this object. What a killed
//    process left goes when a server has lost its session, or with the next Create.
// 5. A forked child changes neither file nor name, whatever it destroys.
//
// Threads: any. Pieces share it, so it lives as long as they.
class SharedFile : public std::enable_shared_from_this<SharedFile> {
 public:
  static constexpr char kDirectory[] = "/dev/shm";

  // For pieces of `room` bytes in all. Null: there cannot be one.
  static std::shared_ptr<SharedFile> Create(size_t room, const std::string& directory = kDirectory);
  ~SharedFile();

  // Empty: there is no room, or this is a forked child.
  MappedMemory Allocate(size_t size) ABSL_LOCKS_EXCLUDED(mu_);
  // Where in the file a piece of it begins.
  uint64_t OffsetOf(const std::byte* piece) const { return static_cast<uint64_t>(piece - base_); }

  const std::string& name() const { return name_; }
  // Takes the name away; what has the file open can read on.
  void EndSharing();

 private:
  friend class MappedMemory;

  SharedFile(std::string directory, std::string name, int descriptor, std::byte* base, size_t size);

  void Free(std::byte* piece, size_t size) ABSL_LOCKS_EXCLUDED(mu_);
  bool LeavesRoom(size_t size) const;
  bool GivePages(uint64_t offset, size_t size) const;

  const std::string directory_;
  const std::string name_;
  const int descriptor_;
  std::byte* const base_;
  const size_t size_;
  const pid_t owner_;

  Mutex mu_;
  std::map<uint64_t, uint64_t> free_ ABSL_GUARDED_BY(mu_);  // size by offset; neighbours are joined
};

}  // namespace msprobe::core
