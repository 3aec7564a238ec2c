#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "agent/core/payload/session_memory.h"

namespace msprobe::core {

// The file name of a session's memory: "msprobe-" and the session's id in 32 hexadecimal digits.
std::string SessionMemoryName(const std::string& session_id);
// The digits of such a name; empty: it is not such a name.
std::string_view SessionOfName(std::string_view file_name);

// Makes the memory of a session in a place where it outlives the process and, if possible, the container:
// - in SharedFile::kDirectory, if that is the machine's (the process is in the initial PID or IPC namespace). The spool
//   directory gets a link to it, so that the next process with that directory finds it;
// - else beside the spool, if SharedFile can use that file system;
// - else in SharedFile::kDirectory of the container.
// `configured` overrides this with a directory, or with "off" for Private. If no place is possible, the memory is
// Private and `why_not` says why.
std::shared_ptr<SessionMemory> MakeSessionMemory(const std::string& configured, size_t room,
                                                 const SessionOrigin& origin, std::string* why_not);

}  // namespace msprobe::core
