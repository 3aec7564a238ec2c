#include "agent/core/transport/waiters.h"

namespace msprobe::core {

absl::Status Waiters::Wait(uint64_t entry, Clock::time_point deadline, Doorbell* bell) {
  MutexLock lock(&mu_);
  const auto waiter = waiters_.emplace(waiters_.end(), entry);
  bell->Ring();
  while (!waiter->done && answered_.WaitUntil(&mu_, deadline)) {
  }
  absl::Status status =
      waiter->done ? absl::OkStatus()
                   : absl::DeadlineExceededError(waiter->missing.empty() ? "the sender is busy" : waiter->missing);
  waiters_.erase(waiter);
  return status;
}

void Waiters::Answer(absl::FunctionRef<std::string(uint64_t entry)> missing) {
  MutexLock lock(&mu_);
  bool any = false;
  for (Waiter& waiter : waiters_) {
    if (waiter.done) continue;
    waiter.missing = missing(waiter.entry);
    waiter.done = waiter.missing.empty();
    any = any || waiter.done;
  }
  if (any) answered_.SignalAll();
}

}  // namespace msprobe::core
