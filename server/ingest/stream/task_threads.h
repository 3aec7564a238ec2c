#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {

// A pool of threads that run tasks, at the priority of the thread that made it or below that.
//
// 1. Tasks begin in the order in which they came.
// 2. Destruction runs the tasks that wait, then ends.
// Threads: Run from any thread, including the pool's own.
class TaskThreads {
 public:
  // `niceness` is added to that of the calling thread; see nice(2).
  TaskThreads(int threads, int niceness);
  ~TaskThreads();

  void Run(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);

  const int niceness_;
  absl::Mutex mu_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace msprobe::server
