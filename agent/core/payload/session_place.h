#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "agent/core/payload/session_memory.h"

namespace msprobe::core {

// The file name of a session's memory: "msprobe-" and the session's id in 32 hexadecimal digits.
std::string SessionMemoryName(const std::string& session_id);
// The digits of such a name; empty: it is another.
std::string_view SessionOfName(std::string_view file_name);

// Makes the memory of a session where it outlives the process and, if that can be, the container:
// - in SharedFile::kDirectory, where that is the machine's (in the initial namespace of processes or of IPC). The spool
//   directory then has a link to it, so that the next process with that directory finds it;
// - else beside the spool, where SharedFile may lie there;
// - else in SharedFile::kDirectory of the container.
// `configured` stands above that: a directory, or "off" for Private; empty: as above. Private, too, where nothing can
// be; `why_not` then says why.
std::shared_ptr<SessionMemory> MakeSessionMemory(const std::string& configured, size_t room,
                                                 const SessionOrigin& origin, std::string* why_not);

}  // namespace msprobe::core
