#include "server/store/disk/disk_state.h"

#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {

void DiskState::Connect(Disk disk) {
  {
    absl::MutexLock lock(&mu_);
    disk_ = std::move(disk);
  }
  Tend();
}

void DiskState::Fail(const absl::Status& status, const std::string& log) {
  absl::MutexLock lock(&mu_);
  if (failed_.ok() || absl::IsResourceExhausted(failed_)) failed_ = status;
  if (!log.empty()) {
    failed_log_ = log;
    log_failed_ = true;
  }
  ++failures_;
  refusing_ = true;
}

void DiskState::Failed(const absl::Status& status) { Fail(status, ""); }

void DiskState::LogFailed(const std::string& log, const absl::Status& status) {
  Fail(status, log);
  absl::MutexLock lock(&sync_mu_);
}

void DiskState::LogLost(const std::string& log, const absl::Status& status) {
  // A disk that is full at a sync is as final as any other: what was written is in doubt.
  Fail(absl::IsResourceExhausted(status) ? absl::UnavailableError(status.message()) : status, log);
}

absl::Status DiskState::SyncLog(absl::FunctionRef<absl::Status()> sync) {
  absl::MutexLock lock(&sync_mu_);
  if (!log_failed_) return sync();
  absl::MutexLock state(&mu_);
  return failed_.ok() ? absl::UnavailableError("writing resumes") : failed_;
}

void DiskState::Tend() {
  Disk disk;
  absl::Status failed;
  std::string failed_log;
  uint64_t failures;
  {
    absl::MutexLock lock(&mu_);
    disk = disk_;
    failed = failed_;
    failed_log = failed_log_;
    failures = failures_;
  }
  uint64_t free = UINT64_MAX;
  if (disk.free_bytes != nullptr && !disk.free_bytes(&free).ok()) free = UINT64_MAX;
  free_ = free;
  if (!failed.ok() && (!absl::IsResourceExhausted(failed) || free < reserve_)) return;
  const bool resumed = !failed.ok() && disk.resume != nullptr && disk.resume(failed_log).ok();
  absl::MutexLock lock(&mu_);
  if (resumed && failures_ == failures) {  // what failed since then was not resumed
    failed_ = absl::OkStatus();
    failed_log_.clear();
    log_failed_ = false;
  }
  refusing_ = !failed_.ok() || free < reserve_;
}

absl::Status DiskState::Check() const {
  if (!refusing_) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  if (!failed_.ok() && !absl::IsResourceExhausted(failed_)) return failed_;
  return absl::ResourceExhaustedError(Cat("the disk of the data directory is full: ", free_ >> 20, " MiB are free, ",
                                          reserve_ >> 20,
                                          " MiB are kept free; nothing new is taken until there is room"));
}

absl::Status DiskState::final() const {
  absl::MutexLock lock(&mu_);
  return absl::IsResourceExhausted(failed_) || absl::IsDataLoss(failed_) ? absl::OkStatus() : failed_;
}

}  // namespace msprobe::server
