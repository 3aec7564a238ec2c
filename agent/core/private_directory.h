#pragma once

#include <string>

#include "absl/status/status.h"

namespace msprobe::core {

// Makes a directory for this user alone (mode 0700); its parent must exist. If the directory exists and is this user's,
// it is closed to others. FailedPrecondition: the path belongs to another user, is a link, or is not a directory.
// Somebody else could then read what is put there, or has put something there already.
absl::Status MakePrivateDirectory(const std::string& path);

// Makes `path` and its parent with mode 0700, and further missing parents with the usual mode. Existing directories
// keep theirs. FailedPrecondition: the system's error.
absl::Status MakeClosedDirectories(const std::string& path);

}  // namespace msprobe::core
