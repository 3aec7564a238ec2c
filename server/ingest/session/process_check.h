#pragma once

#include <functional>

#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/value.h"

namespace msprobe::server {

// The state of a capturing process, as far as the server can tell without asking it.
enum class ProcessState { kUnknown, kAlive, kGone };
// Tells it of the process that sent the hello.
using ProcessCheck = std::function<ProcessState(const v1::Hello&)>;

// Whether the hello comes from this boot of this machine.
bool IsThisBoot(const v1::Hello& hello);

// Looks into /proc: kGone or kAlive for a process of this boot of this machine, kUnknown for any other. A process id
// that is used again is told by its start ticks.
ProcessState CheckProcess(const v1::Hello& hello);

// Whether this is a session of the importer: no process captured it, and none waits for its files.
inline bool IsImport(const storage::SessionRow& session) {
  return session.hello().process_id() == 0 && session.hello().boot_id().empty();
}

}  // namespace msprobe::server
