#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace msprobe::core {

// Executes a program that inherits nothing from this process but the environment. It is a child of init in a session of
// its own. It has none of this process's descriptors: its standard input is /dev/null, and its output and errors are
// appended to `log_path`. All signals are unblocked and at their defaults, and all processors are allowed.
//
// It does not use fork(2), because handlers of pthread_atfork (gRPC's and others') must not run, and copying the
// address space of a training process would be expensive.
//
// Errors: the error of execve, with the program's name. Threads: any.
absl::Status StartDetached(const std::vector<std::string>& arguments, const std::string& log_path);

}  // namespace msprobe::core
