#include "server/store/disk_state.h"

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

void DiskState::Failed(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (failed_.ok() || absl::IsResourceExhausted(failed_)) failed_ = status;
  refusing_ = true;
}

void DiskState::LogFailed(const absl::Status& status) {
  log_failed_ = true;
  Failed(status);
  absl::MutexLock lock(&sync_mu_);
}

void DiskState::LogLost(const absl::Status& status) {
  log_failed_ = true;
  // A disk that is full at a sync is as final as any other: what was written is in doubt.
  Failed(absl::IsResourceExhausted(status) ? absl::UnavailableError(status.message()) : status);
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
  {
    absl::MutexLock lock(&mu_);
    disk = disk_;
    failed = failed_;
  }
  uint64_t free = UINT64_MAX;
  if (disk.free_bytes != nullptr && !disk.free_bytes(&free).ok()) free = UINT64_MAX;
  free_ = free;
  if (!failed.ok() && (!absl::IsResourceExhausted(failed) || free < reserve_)) return;
  const bool resumed = !failed.ok() && disk.resume != nullptr && disk.resume().ok();
  absl::MutexLock lock(&mu_);
  if (resumed && absl::IsResourceExhausted(failed_)) {
    failed_ = absl::OkStatus();
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
