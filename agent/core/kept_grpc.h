#pragma once

namespace msprobe::core {

// Before anything of gRPC's is made: keeps its library and its event engine until the process ends. Whoever gave up the
// last of either would wait for their threads, for ever where the process could not start all of them, and in gRPC 1.51
// sometimes 10 s for a poller that has nothing left to poll. Threads: any.
void KeepGrpc();

}  // namespace msprobe::core
