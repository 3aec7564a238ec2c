#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace msprobe::core {

// Makes the directory if it is missing, checks that files can be made in it, and gives its absolute path. A path may
// hold any character but NUL. InvalidArgument names the path and what stands in the way.
absl::StatusOr<std::string> CheckDumpPath(std::string_view dump_path);

}  // namespace msprobe::core
