#pragma once

#include <string>
#include <utility>

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

  // Whether the directory is still the one that was locked. False: it was removed or replaced, and another process may
  // have locked what is at its path now; this one must write there no more.
  bool InPlace() const;

 private:
  DirectoryLock(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
};

}  // namespace msprobe::server
