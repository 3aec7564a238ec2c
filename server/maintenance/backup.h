#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "msprobe/v1/control.pb.h"
#include "server/store/store.h"

namespace msprobe::server {

// Sends a checkpoint of the store, file by file. `scratch`: a directory on the file system of the store, in which the
// checkpoint lies meanwhile. `send` gives false when nobody listens any more.
absl::Status SendBackup(const Store& store, const std::string& scratch,
                        const std::function<bool(const v1::BackupChunk&)>& send);

// What a backup that a crash interrupted left there.
void RemoveLeftBackups(const std::string& scratch);

}  // namespace msprobe::server
