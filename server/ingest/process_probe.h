#pragma once

#include <functional>

#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/value.h"

namespace msprobe::server {

// What can be told about a capturing process without asking it.
enum class ProcessState { kUnknown, kAlive, kGone };
using ProcessProbe = std::function<ProcessState(const v1::Hello&)>;

// Whether it comes from this boot of this machine.
bool IsThisBoot(const v1::Hello& hello);

// Looks into /proc: kGone and kAlive for a process of this boot of this machine (its start ticks tell a reused process
// id), kUnknown for any other.
ProcessState ProbeProcess(const v1::Hello& hello);

// A session of the importer: nothing captured it, and nothing waits for its files.
inline bool IsImport(const storage::SessionRow& session) {
  return session.hello().process_id() == 0 && session.hello().boot_id().empty();
}

}  // namespace msprobe::server
