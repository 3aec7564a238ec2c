#include "server/ingest/apply_threads.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace msprobe::server {

int ApplyThreads::Default() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 4u, 16u)); }

ApplyThreads::ApplyThreads(int threads, int niceness) : niceness_(niceness) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

ApplyThreads::~ApplyThreads() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void ApplyThreads::Run(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  waiting_.push_back(std::move(task));
}

void ApplyThreads::Loop() {
  // Of this thread alone: Linux takes thread ids here.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), niceness_);
  const auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || !waiting_.empty(); };
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mu_, absl::Condition(&woken));
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

}  // namespace msprobe::server
