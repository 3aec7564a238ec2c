#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace msprobe::server {

// The exclusive right to a data directory, held by this process until destruction (or death, whatever its kind).
class DirectoryLock {
 public:
  // Makes the directory. AlreadyExists: another process (named by its id where known) holds the lock.
  static absl::StatusOr<DirectoryLock> Acquire(const std::string& directory);

  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace msprobe::server
