#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/core/at_fork.h"
#include "agent/core/mutex.h"
#include "agent/core/payload/mapped_memory.h"

namespace msprobe::core {

// Memory in a file, which the kernel keeps when the process dies and which others of this user can read.
//
// 1. A piece has its pages before it is given out, so that touching it never fails for want of room (SIGBUS). File
//    systems that cannot promise that (of a network, or that copy on write) are not used.
// 2. Of a file system in memory half stays free for the program, and payloads leave one under 1 GiB (Docker's default
//    is 64 MiB) alone: others, NCCL and DataLoader among them, do not survive a full one. Of a disk 64 MiB stay free,
//    and 1 GiB of payloads'.
// 3. Freed pieces go back to the system.
// 4. The file is locked (flock) while its process lives, and stays when it dies. It goes with Remove.
// 5. A forked child has neither the lock nor the file: what it writes to a piece is its own.
//
// Threads: any. Pieces share it, so it lives as long as they.
class SharedFile : public std::enable_shared_from_this<SharedFile> {
 public:
  static constexpr char kDirectory[] = "/dev/shm";

  enum class Use : uint8_t { kRecords, kPayloads };

  // For pieces of `room` bytes in all. It has another name until Publish: whoever dies before that left nothing.
  // FailedPrecondition, Unavailable, ResourceExhausted: there cannot be one, and why.
  static absl::StatusOr<std::shared_ptr<SharedFile>> Create(const std::string& path, size_t room);
  absl::Status Publish();
  ~SharedFile();

  // What a dead process left, all of it free but what is claimed. Unavailable: its process lives, or another has taken
  // it over. NotFound: it is gone. PermissionDenied: it is not a file of this user alone.
  static absl::StatusOr<std::shared_ptr<SharedFile>> TakeOver(const std::string& path);
  // Empty: it is not inside the file, or a part of it is claimed already.
  MappedMemory Claim(uint64_t offset, size_t size) ABSL_LOCKS_EXCLUDED(mu_);

  // Empty: there is no room, or this is a forked child.
  MappedMemory Allocate(size_t size, Use use) ABSL_LOCKS_EXCLUDED(mu_);
  // Where in the file a piece of it begins.
  uint64_t OffsetOf(const std::byte* piece) const { return static_cast<uint64_t>(piece - base_); }

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }

  // Takes the name away; what has the file open can read on. False: this is a forked child, and nothing happens.
  bool Remove();
  // Leaves everything as it is, also what is freed from now on, for whoever takes it over.
  void Leave();

 private:
  friend class MappedMemory;

  SharedFile(std::string path, std::unique_ptr<OwnDescriptor> file, std::byte* base, size_t size);

  void Free(std::byte* piece, size_t size) ABSL_LOCKS_EXCLUDED(mu_);
  // These bytes of it are used from now on.
  void TakeFromFree(std::map<uint64_t, uint64_t>::iterator range, uint64_t offset, size_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool LeavesRoom(size_t size, Use use) const;
  bool GivePages(uint64_t offset, size_t size) const;
  bool OfThisProcess() const;

  const std::string path_;
  const std::unique_ptr<OwnDescriptor> file_;
  std::byte* const base_;
  const size_t size_;
  const pid_t owner_;

  Mutex mu_;
  bool published_ ABSL_GUARDED_BY(mu_) = false;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint64_t, uint64_t> free_ ABSL_GUARDED_BY(mu_);  // size by offset; neighbours are joined

  const AtFork at_fork_;
};

}  // namespace msprobe::core
