#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {

// Works on `count` things on `threads` threads and takes the results in their order, on the calling thread. `take` says
// whether to go on. Works ahead by two things a thread, so that memory does not depend on `count`.
// The first status that is not OK, in that order, ends it.
template <typename Result>
class InOrder {
 public:
  using Work = absl::FunctionRef<absl::StatusOr<Result>(size_t index)>;
  using Take = absl::FunctionRef<absl::StatusOr<bool>(size_t index, Result result)>;

  static absl::Status Run(size_t count, int threads, Work work, Take take) {
    return InOrder(count, threads, work).TakeAll(take);
  }

 private:
  InOrder(size_t count, int threads, Work work) : count_(count), ahead_(2 * static_cast<size_t>(threads)), work_(work) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }

  ~InOrder() {
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Loop() {
    for (;;) {
      size_t index = 0;
      {
        absl::MutexLock lock(&mu_);
        const auto may = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
          return stopped_ || next_ == count_ || next_ < taken_ + ahead_;
        };
        mu_.Await(absl::Condition(&may));
        if (stopped_ || next_ == count_) return;
        index = next_++;
      }
      auto result = work_(index);
      absl::MutexLock lock(&mu_);
      results_.emplace(index, std::move(result));
    }
  }

  absl::Status TakeAll(Take take) {
    for (size_t index = 0; index < count_; ++index) {
      std::optional<absl::StatusOr<Result>> result;
      {
        absl::MutexLock lock(&mu_);
        const auto there = [this, index]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return results_.contains(index); };
        mu_.Await(absl::Condition(&there));
        result = std::move(results_.extract(index).mapped());
        taken_ = index + 1;
      }
      if (!result->ok()) return result->status();
      auto further = take(index, **std::move(result));
      if (!further.ok()) return further.status();
      if (!*further) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  const size_t count_;
  const size_t ahead_;
  const Work work_;
  absl::Mutex mu_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  size_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::map<size_t, absl::StatusOr<Result>> results_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace msprobe::server
