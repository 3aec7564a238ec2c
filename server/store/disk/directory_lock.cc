#include "server/store/disk/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "server/format/cat.h"

namespace msprobe::server {

absl::StatusOr<DirectoryLock> DirectoryLock::Acquire(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return absl::FailedPreconditionError(Cat("cannot make data directory ", directory, ": ", error.message()));
  const std::string path = Cat(directory, "/msprobe-server.lock");
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return absl::FailedPreconditionError(Cat("cannot open ", path, ": ", std::strerror(errno)));
  DirectoryLock lock(descriptor, path);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const ssize_t got = pread(descriptor, holder, sizeof(holder) - 1, 0);
    const std::string pid(absl::StripAsciiWhitespace(absl::string_view(holder, got > 0 ? got : 0)));
    return absl::AlreadyExistsError(Cat("data directory ", directory, " is in use by another msprobe-server",
                                        pid.empty() ? "" : Cat(" (process ", pid, ")")));
  }
  const std::string pid = Cat(getpid(), "\n");
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, pid.data(), pid.size(), 0) < 0) {
    return absl::FailedPreconditionError(Cat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return lock;
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

bool DirectoryLock::InPlace() const {
  struct stat held, found;
  return fstat(descriptor_, &held) == 0 && stat(path_.c_str(), &found) == 0 && held.st_ino == found.st_ino &&
         held.st_dev == found.st_dev;
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace msprobe::server
