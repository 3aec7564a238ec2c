#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace msprobe::core {

// Makes the directory where it is missing and checks that files can be made in it. Gives the absolute path.
// InvalidArgument names the path and what stands in the way. Any characters are allowed but NUL.
absl::StatusOr<std::string> CheckDumpPath(std::string_view dump_path);

}  // namespace msprobe::core
