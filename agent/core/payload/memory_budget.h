#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "absl/time/time.h"
#include "agent/core/mutex.h"
#include "agent/core/session.h"

namespace msprobe::core {

// The bytes a session holds, against its ceiling, and what a producer does when there is no room.
//
// A shortage begins when a producer is refused for the first time and ends when usage has fallen to three quarters of
// the ceiling. It holds the producers of one step for at most stall_bound in all: the time in which at least one of
// them waits is added up. After that (kDrop: at once) they are refused until the shortage ends, in later steps, too. So
// an overload that lasts slows the steps down to what is taken, and when nothing is taken one step is held, once.
//
// Threads: any.
class MemoryBudget {
 public:
  enum class Outcome : uint8_t {
    kGranted,
    kDropped,   // policy kDrop
    kExpired,   // the bound on stalling was reached, or the stall was interrupted
    kTooLarge,  // more than the ceiling; nothing was waited for
  };

  // Called on the producer's thread: `on_shortage` before it waits; `interrupted` ten times a second meanwhile, without
  // a lock held: true ends its waiting, and nobody else's.
  MemoryBudget(size_t ceiling, LossPolicy policy, absl::Duration stall_bound, std::function<void()> on_shortage,
               std::function<bool()> interrupted = nullptr);

  Outcome Acquire(size_t bytes);
  void Charge(size_t bytes) { used_ += bytes; }  // without asking
  void Release(size_t bytes);
  void NextStep();     // what a step may be held begins anew
  void StopWaiting();  // from now on nobody waits

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
  bool expired_ ABSL_GUARDED_BY(mu_) = false;             // of this shortage
  Clock::time_point stalled_since_ ABSL_GUARDED_BY(mu_);  // with waiters_ > 0
  Clock::duration stalled_ ABSL_GUARDED_BY(mu_) = {};     // of this shortage and step, before stalled_since_
};

}  // namespace msprobe::core
