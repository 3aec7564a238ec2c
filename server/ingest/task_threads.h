#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {

// Threads that run what they are given, at the priority of the thread that made them or below it.
//
// 1. Tasks begin in the order in which they came.
// 2. Destruction runs what is waiting.
// Threads: Run from any, tasks too.
class TaskThreads {
 public:
  // `niceness`: of nice(2), added to that of this thread.
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
