#pragma once

#include "agent/core/mutex.h"

namespace msprobe::core {

// Wakes the sender thread. A ring is remembered until the next wait, so none is lost. Many rings wake it once.
// Threads: Ring from any thread, WaitUntil from one.
class Doorbell {
 public:
  using Clock = CondVar::Clock;

  void Ring() {
    MutexLock lock(&mu_);
    rung_ = true;
    cv_.SignalAll();
  }

  // Returns if the bell was rung since the last return, or else at `deadline`.
  void WaitUntil(Clock::time_point deadline) {
    MutexLock lock(&mu_);
    while (!rung_ && cv_.WaitUntil(&mu_, deadline)) {
    }
    rung_ = false;
  }

 private:
  Mutex mu_;
  CondVar cv_;
  bool rung_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace msprobe::core
