#pragma once

#include <functional>
#include <thread>

namespace msprobe::core {

// A thread beside the training. It takes no signals, which are for the threads of the program, and where both want a
// processor it gets a ninth of what the program's thread gets (nice(2), 10). What it starts, gRPC's threads among them,
// inherits both. `name`: at most 15 characters, as tools show it. Throws std::system_error where none can be had.
std::thread StartBackgroundThread(const char* name, std::function<void()> body);

}  // namespace msprobe::core
