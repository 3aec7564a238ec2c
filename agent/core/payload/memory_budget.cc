#include "agent/core/payload/memory_budget.h"

#include <algorithm>
#include <utility>

namespace msprobe::core {
namespace {

constexpr std::chrono::milliseconds kLookForInterrupt(100);

}  // namespace

MemoryBudget::MemoryBudget(size_t ceiling, LossPolicy policy, absl::Duration stall_bound,
                           std::function<void()> on_shortage, std::function<bool()> interrupted)
    : ceiling_(ceiling),
      resume_(ceiling / 4 * 3),
      policy_(policy),
      // A bound that is too long for the clock would overflow the deadline.
      stall_bound_(absl::ToChronoNanoseconds(std::clamp(stall_bound, absl::ZeroDuration(), absl::Hours(24 * 365)))),
      on_shortage_(std::move(on_shortage)),
      interrupted_(std::move(interrupted)) {}

MemoryBudget::Outcome MemoryBudget::Acquire(size_t bytes) {
  if (bytes > ceiling_) return Outcome::kTooLarge;
  if (!shortage_ && TryAcquire(bytes)) return Outcome::kGranted;
  return AcquireSlowly(bytes);
}

bool MemoryBudget::TryAcquire(size_t bytes) {
  if (used_.fetch_add(bytes) + bytes <= ceiling_) return true;
  used_ -= bytes;
  return false;
}

void MemoryBudget::EndShortageIfOver() {
  if (used_ > resume_ || waiters_ > 0) return;
  shortage_ = expired_ = false;
  stalled_ = {};
}

MemoryBudget::Clock::duration MemoryBudget::Stalled(Clock::time_point now) const {
  return waiters_ > 0 ? stalled_ + (now - stalled_since_) : stalled_;
}

MemoryBudget::Outcome MemoryBudget::AcquireSlowly(size_t bytes) {
  MutexLock lock(&mu_);
  if (shortage_) EndShortageIfOver();
  if (policy_ == LossPolicy::kDrop) {
    if (!shortage_ && TryAcquire(bytes)) return Outcome::kGranted;
    shortage_ = true;
    return Outcome::kDropped;
  }
  // Set before the attempt, so that a release after the attempt signals.
  const bool began = !shortage_.exchange(true);
  if (began && TryAcquire(bytes)) {
    shortage_ = false;
    return Outcome::kGranted;
  }
  if (on_shortage_) on_shortage_();
  while (true) {
    const Clock::time_point now = Clock::now();
    expired_ = expired_ || Stalled(now) >= stall_bound_;
    if (expired_ || !waiting_allowed_) return Outcome::kExpired;
    if (TryAcquire(bytes)) return Outcome::kGranted;
    if (interrupted_) {
      mu_.Unlock();
      const bool interrupted = interrupted_();
      mu_.Lock();
      if (interrupted) return Outcome::kExpired;
    }
    if (waiters_++ == 0) stalled_since_ = now;
    Clock::time_point until = stalled_since_ + (stall_bound_ - stalled_);
    if (interrupted_) until = std::min(until, now + kLookForInterrupt);
    room_.WaitUntil(&mu_, until);
    if (--waiters_ == 0) stalled_ += Clock::now() - stalled_since_;
  }
}

void MemoryBudget::Release(size_t bytes) {
  used_ -= bytes;
  if (!shortage_) return;
  MutexLock lock(&mu_);
  room_.SignalAll();
}

void MemoryBudget::NextStep() {
  if (!shortage_) return;
  MutexLock lock(&mu_);
  stalled_ = {};
  stalled_since_ = Clock::now();
}

void MemoryBudget::StopWaiting() {
  MutexLock lock(&mu_);
  waiting_allowed_ = false;
  room_.SignalAll();
}

}  // namespace msprobe::core
