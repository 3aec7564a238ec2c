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

// Memory in a file. The kernel keeps it when the process dies, and other processes of this user can read it.
//
// 1. A piece has its pages before it is returned, so touching it never fails for lack of room (SIGBUS). File systems
//    that cannot promise this (network file systems, copy on write) are not used.
// 2. In a memory file system, half stays free for the program, and payloads are not put into one of less than 1 GiB
//    (Docker's default is 64 MiB), because other users such as NCCL and DataLoader do not survive a full one. On a
//    disk, records leave 64 MiB free, and payloads 1 GiB.
// 3. Freed pieces go back to the system.
// 4. The file is locked (flock) while its process lives. It stays when the process dies; Remove removes it.
// 5. A forked child has neither the lock nor the file. What it writes to a piece is private to it.
//
// Threads: any. Pieces share ownership of the file.
class SharedFile : public std::enable_shared_from_this<SharedFile> {
 public:
  static constexpr char kDirectory[] = "/dev/shm";

  enum class Use : uint8_t { kRecords, kPayloads };

  // Makes a file for pieces of `room` bytes in all. It has a temporary name until Publish; a process that dies before
  // that leaves nothing. FailedPrecondition, Unavailable, ResourceExhausted say why there can be no file.
  static absl::StatusOr<std::shared_ptr<SharedFile>> Create(const std::string& path, size_t room);
  absl::Status Publish();
  ~SharedFile();

  // Takes over the file of a dead process. Everything in it counts as free until it is claimed. Unavailable: the
  // process lives, or another process has taken the file over. NotFound: the file is gone. PermissionDenied: the file
  // is not this user's alone.
  static absl::StatusOr<std::shared_ptr<SharedFile>> TakeOver(const std::string& path);
  // Keeps these bytes as a piece. Empty: they are not inside the file, or some of them are claimed already.
  MappedMemory Claim(uint64_t offset, size_t size) ABSL_LOCKS_EXCLUDED(mu_);

  // Empty: there is no room, or this is a forked child.
  MappedMemory Allocate(size_t size, Use use) ABSL_LOCKS_EXCLUDED(mu_);
  // The offset of a piece in the file.
  uint64_t OffsetOf(const std::byte* piece) const { return static_cast<uint64_t>(piece - base_); }

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }

  // Removes the file's name. Processes that have the file open can go on reading. False: this is a forked child, and
  // nothing happens.
  bool Remove();
  // From now on, everything stays as it is for the process that takes the file over, even pieces that are freed.
  void Leave();

 private:
  friend class MappedMemory;

  SharedFile(std::string path, std::unique_ptr<OwnDescriptor> file, std::byte* base, size_t size);

  void Free(std::byte* piece, size_t size) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes these bytes out of a free range.
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
