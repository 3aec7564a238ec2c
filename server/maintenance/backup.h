#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "msprobe/v1/control.pb.h"
#include "server/store/store.h"

namespace msprobe::server {

// Sends a checkpoint of the store, file by file. `scratch`: a directory on the store's file system, for the checkpoint
// while it is sent. `send` returns false when the receiver is gone.
absl::Status SendBackup(const Store& store, const std::string& scratch,
                        const std::function<bool(const v1::BackupChunk&)>& send);

// Removes what backups that a crash interrupted left in `scratch`.
void RemoveLeftBackups(const std::string& scratch);

}  // namespace msprobe::server
