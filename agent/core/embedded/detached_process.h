#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace msprobe::core {

// Executes a program that has nothing of this process: it is nobody's child but init's, in a session of its own, with
// no descriptor of ours (standard input /dev/null, output and errors appended to `log_path`), every signal at its
// default and unblocked, and all processors allowed. The environment is this process's.
//
// Not fork(2): handlers registered with pthread_atfork (gRPC's and others') must not run, and the address space of a
// training process is not worth copying.
//
// Errors: what execve said, with the program's name. Threads: any.
absl::Status StartDetached(const std::vector<std::string>& arguments, const std::string& log_path);

}  // namespace msprobe::core
