#include "agent/core/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

absl::Status Make(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat("cannot make ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status MakePrivateDirectory(const std::string& path) {
  if (absl::Status status = Make(path); !status.ok()) return status;
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    return absl::FailedPreconditionError(Cat(path, " is no directory, or a link to one; remove it"));
  }
  if (found.st_uid != geteuid()) {
    return absl::FailedPreconditionError(Cat(path, " belongs to user ", found.st_uid,
                                             ", and this process runs as user ", geteuid(),
                                             "; remove it, or write elsewhere"));
  }
  // Errors are ignored: a file system without modes cannot keep anybody out.
  if ((found.st_mode & 077) != 0) {
    [[maybe_unused]] const int ignored = chmod(path.c_str(), 0700);
  }
  return absl::OkStatus();
}

absl::Status MakeClosedDirectories(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.parent_path().empty()) std::filesystem::create_directories(parent.parent_path(), error);
  if (error)
    return absl::FailedPreconditionError(Cat("cannot make ", parent.parent_path().native(), ": ", error.message()));
  if (!parent.empty()) {
    if (absl::Status status = Make(parent); !status.ok()) return status;
  }
  return Make(path);
}

}  // namespace msprobe::core
