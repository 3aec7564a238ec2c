#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace msprobe::core {

// Starts a thread beside the program's own. It takes no signals. When it competes with a thread of the program for a
// processor, it gets a ninth of that thread's time (nice(2) 10). Threads that it starts inherit both, also gRPC's.
// `name`: at most 15 characters, shown by tools. Throws std::system_error if there can be no further thread.
std::thread StartBackgroundThread(const char* name, std::function<void()> body);

// The processor time of this process's background threads, gRPC's included, as far as they have noted it. Each notes
// what it has used since the last time that it did.
void NoteBackgroundTime();
absl::Duration BackgroundTime();

}  // namespace msprobe::core
