#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {

// Whether the store may take more: the room on its disk, and what went wrong in writing.
//
// 1. New content is refused while less than `reserve` bytes are free: deleting and compacting need room themselves.
// 2. A write or flush that found the disk full stops all writing until Tend sees room again and resumes.
// 3. A failed sync is final: what the system holds of unsynced bytes is unknown, and only a new start, which reads the
//    files again, can tell. Damage that a compaction meets ends all writing, too; reading goes on.
// 4. The log is not synced after an append to it failed, until writing resumes with a new one: RocksDB takes such a
//    call for a mistake of ours and aborts.
// Threads: every method from any thread.
class DiskState {
 public:
  struct Disk {
    std::function<absl::Status(uint64_t* bytes)> free_bytes;
    // Of writing, after the disk was full; `log`: the file that failed, if it was a log, which must not be written
    // again. Calls Failed where that cannot be.
    std::function<absl::Status(const std::string& log)> resume;
  };
  explicit DiskState(uint64_t reserve_bytes) : reserve_(reserve_bytes) {}

  void Connect(Disk disk);
  // Called by whatever failed in writing. ResourceExhausted: the disk is full. Anything else is final.
  void Failed(const absl::Status& status);
  // Called by the thread whose append to the log failed, before RocksDB knows of it. Waits for a sync under way.
  void LogFailed(const std::string& log, const absl::Status& status) ABSL_LOCKS_EXCLUDED(sync_mu_);
  // Called by the thread whose sync of the log failed, from within SyncLog or not. Final.
  void LogLost(const std::string& log, const absl::Status& status);
  // Runs the sync, or gives why the log has failed.
  absl::Status SyncLog(absl::FunctionRef<absl::Status()> sync) ABSL_LOCKS_EXCLUDED(sync_mu_);
  // Looks at the disk, resumes where that may help. Call about every 200 ms, from one thread at a time.
  void Tend();

  // OK, ResourceExhausted (says what is free and what is needed) or what was final. Cheap.
  absl::Status Check() const;
  // What only a new start can judge; OK: nothing.
  absl::Status final() const;
  uint64_t free_bytes() const { return free_; }

 private:
  void Fail(const absl::Status& status, const std::string& log);

  const uint64_t reserve_;
  std::atomic<uint64_t> free_{UINT64_MAX};
  std::atomic<bool> refusing_{false};
  absl::Mutex sync_mu_;                  // held during a sync of the log
  std::atomic<bool> log_failed_{false};  // changed under mu_, with failed_log_
  mutable absl::Mutex mu_;
  Disk disk_ ABSL_GUARDED_BY(mu_);
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  std::string failed_log_ ABSL_GUARDED_BY(mu_);
  uint64_t failures_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
