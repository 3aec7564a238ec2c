#pragma once

#include <string>

#include "absl/status/status.h"

namespace msprobe::core {

// A directory of this user alone, made with mode 0700 where it is missing; what is above it has to be there. One of
// this user's that others may enter is closed to them. FailedPrecondition: it is another user's, a link, or no
// directory: whoever has it could read what is put there, or has put something there.
absl::Status MakePrivateDirectory(const std::string& path);

// Makes `path` and the directory above it with mode 0700, and what is missing above those as usual. What is there stays
// as it is. FailedPrecondition: the system's error.
absl::Status MakeClosedDirectories(const std::string& path);

}  // namespace msprobe::core
