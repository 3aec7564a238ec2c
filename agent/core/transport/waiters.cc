#include "agent/core/transport/waiters.h"

#include <utility>

namespace msprobe::core {

absl::Status Waiters::Wait(uint64_t entry, Clock::time_point deadline, Doorbell* bell) {
  MutexLock lock(&mu_);
  const auto waiter = waiters_.emplace(waiters_.end(), entry);
  bell->Ring();
  while (absl::IsUnavailable(waiter->standing) && answered_.WaitUntil(&mu_, deadline)) {
  }
  absl::Status status = std::move(waiter->standing);
  waiters_.erase(waiter);
  return absl::IsUnavailable(status) ? absl::DeadlineExceededError(status.message()) : status;
}

void Waiters::Answer(absl::FunctionRef<absl::Status(uint64_t entry)> standing) {
  MutexLock lock(&mu_);
  bool any = false;
  for (Waiter& waiter : waiters_) {
    if (!absl::IsUnavailable(waiter.standing)) continue;
    waiter.standing = standing(waiter.entry);
    any = any || !absl::IsUnavailable(waiter.standing);
  }
  if (any) answered_.SignalAll();
}

}  // namespace msprobe::core
