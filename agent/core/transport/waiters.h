#pragma once

#include <cstdint>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "agent/core/doorbell.h"
#include "agent/core/mutex.h"

namespace msprobe::core {

// Threads that wait until the sender has dealt with the entries of the queue up to one.
//
// Threads: Wait from any, Answer from the sender.
class Waiters {
 public:
  using Clock = Doorbell::Clock;

  // Rings `bell`, and waits for an answer that is not Unavailable, which it returns. DeadlineExceeded, at `deadline`:
  // what the last answer named.
  absl::Status Wait(uint64_t entry, Clock::time_point deadline, Doorbell* bell) ABSL_LOCKS_EXCLUDED(mu_);
  // `standing` says how it stands with the entries up to one. Unavailable names what is missing still.
  void Answer(absl::FunctionRef<absl::Status(uint64_t entry)> standing) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiter {
    explicit Waiter(uint64_t wanted) : entry(wanted) {}
    const uint64_t entry;
    absl::Status standing = absl::UnavailableError("the sender is busy");
  };

  Mutex mu_;
  CondVar answered_;
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::core
