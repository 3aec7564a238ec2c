#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace msprobe::server {

// Counts the requests under way, and how long there has been none. Threads: any.
class Activity {
 public:
  explicit Activity(absl::Time now) : since_(now) {}

  class Scope {
   public:
    explicit Scope(Activity* activity) : activity_(activity) { activity_->Begin(); }
    ~Scope() { activity_->End(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity* const activity_;
  };

  void Touch(absl::Time now) {
    absl::MutexLock lock(&mu_);
    since_ = now;
    ever_ = true;
  }
  bool ever() const {
    absl::MutexLock lock(&mu_);
    return ever_;
  }
  // Waits until no request is under way; false: the timeout came first.
  bool AwaitQuiet(absl::Duration timeout) const {
    absl::MutexLock lock(&mu_);
    auto quiet = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return busy_ == 0; };
    return mu_.AwaitWithTimeout(absl::Condition(&quiet), timeout);
  }
  // How long there has been nothing to do; zero while something is under way.
  absl::Duration Idle(absl::Time now) {
    absl::MutexLock lock(&mu_);
    if (busy_ > 0 || ended_) since_ = now;
    ended_ = false;
    return now - since_;
  }

 private:
  void Begin() {
    absl::MutexLock lock(&mu_);
    ++busy_;
    ever_ = true;
  }
  void End() {
    absl::MutexLock lock(&mu_);
    --busy_;
    ended_ = true;
  }

  mutable absl::Mutex mu_;
  int busy_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool ever_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
