#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "absl/time/time.h"
#include "agent/core/mutex.h"
#include "agent/core/session.h"

namespace msprobe::core {

// Counts the bytes that a session holds against its ceiling, and decides what a producer does when there is no room.
//
// A shortage begins when a producer finds no room, and ends when usage has fallen to three quarters of the ceiling.
// During a shortage the producers of one step wait for at most stall_bound in all; time counts while at least one of
// them waits. After that (with kDrop at once) they are refused until the shortage ends, even in later steps. So a
// lasting overload slows steps down to the speed of the server, and a server that takes nothing delays one step, once.
//
// Threads: any.
class MemoryBudget {
 public:
  enum class Outcome : uint8_t {
    kGranted,
    kDropped,   // the policy is kDrop
    kExpired,   // stall_bound was reached, or the stall was interrupted
    kTooLarge,  // more bytes than the ceiling; did not wait
  };

  // Both functions are called on the producer's thread without a lock. `on_shortage`: before it waits. `interrupted`:
  // ten times a second while it waits; true ends the wait of this producer alone.
  MemoryBudget(size_t ceiling, LossPolicy policy, absl::Duration stall_bound, std::function<void()> on_shortage,
               std::function<bool()> interrupted = nullptr);

  Outcome Acquire(size_t bytes);
  void Charge(size_t bytes) { used_ += bytes; }  // takes bytes even if there is no room
  void Release(size_t bytes);
  void NextStep();     // the next step may wait for stall_bound again
  void StopWaiting();  // from now on no producer waits

  size_t used() const { return used_; }
  size_t ceiling() const { return ceiling_; }

 private:
  using Clock = CondVar::Clock;

  bool TryAcquire(size_t bytes);
  Outcome AcquireSlowly(size_t bytes);
  void EndShortageIfOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Clock::duration Stalled(Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t ceiling_;
  const size_t resume_;
  const LossPolicy policy_;
  const Clock::duration stall_bound_;
  const std::function<void()> on_shortage_;
  const std::function<bool()> interrupted_;

  std::atomic<size_t> used_{0};
  std::atomic<bool> shortage_{false};

  Mutex mu_;
  CondVar room_;
  bool waiting_allowed_ ABSL_GUARDED_BY(mu_) = true;
  int waiters_ ABSL_GUARDED_BY(mu_) = 0;
  bool expired_ ABSL_GUARDED_BY(mu_) = false;             // in this shortage
  Clock::time_point stalled_since_ ABSL_GUARDED_BY(mu_);  // valid while waiters_ > 0
  Clock::duration stalled_ ABSL_GUARDED_BY(mu_) = {};     // in this shortage and step, before stalled_since_
};

}  // namespace msprobe::core
