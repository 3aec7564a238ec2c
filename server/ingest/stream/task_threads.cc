#include "server/ingest/stream/task_threads.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace msprobe::server {
namespace {

constexpr int kLowest = 19;  // of nice(2)

}  // namespace

TaskThreads::TaskThreads(int threads, int niceness)
    : niceness_(std::min(getpriority(PRIO_PROCESS, 0) + niceness, kLowest)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

TaskThreads::~TaskThreads() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void TaskThreads::Run(std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  waiting_.push_back(std::move(task));
}

void TaskThreads::Loop() {
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
