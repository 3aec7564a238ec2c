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

// Whether the store may take more: how much room its disk has, and what went wrong in writing.
//
// 1. New content is refused while less than `reserve` bytes are free, because deleting and compacting need room too.
// 2. A write or flush that finds the disk full stops all writing, until Tend sees room again and resumes it.
// 3. A failed sync is final. Nobody knows which of the unsynced bytes the system still holds; only a new start, which
//    reads the files again, can tell. Damage that a compaction meets also ends all writing; reading goes on.
// 4. After an append to the log has failed, the log is not synced until writing resumes with a new one. RocksDB takes
//    such a call for a bug and aborts.
// Threads: every method from any thread.
class DiskState {
 public:
  struct Disk {
    std::function<absl::Status(uint64_t* bytes)> free_bytes;
    // Resumes writing after the disk was full. `log`: the file whose write failed, if it was a log: it must not be
    // written again. Calls Failed where writing cannot resume.
    std::function<absl::Status(const std::string& log)> resume;
  };
  explicit DiskState(uint64_t reserve_bytes) : reserve_(reserve_bytes) {}

  void Connect(Disk disk);
  // Call when a write failed. ResourceExhausted: the disk is full. Anything else is final.
  void Failed(const absl::Status& status);
  // Call on the thread whose append to the log failed, before RocksDB knows of it. Waits for a sync under way.
  void LogFailed(const std::string& log, const absl::Status& status) ABSL_LOCKS_EXCLUDED(sync_mu_);
  // Call on the thread whose sync of the log failed, inside SyncLog or elsewhere. Final.
  void LogLost(const std::string& log, const absl::Status& status);
  // Runs the sync, or returns why the log has failed.
  absl::Status SyncLog(absl::FunctionRef<absl::Status()> sync) ABSL_LOCKS_EXCLUDED(sync_mu_);
  // Looks at the disk, resumes where that may help. Call about twice a second, from one thread at a time.
  void Tend();

  // OK, ResourceExhausted (which says what is free and what is needed) or the final failure. Cheap.
  absl::Status Check() const;
  // The failure after which only a new start helps; OK: there is none.
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
