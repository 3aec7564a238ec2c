#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace msprobe::server {

// Runs tasks on a few threads. Tasks with the same key run one at a time and in order; tasks with different keys run
// side by side. The destructor calls Stop. Threads: any, also from a task.
class KeyedWorkers {
 public:
  using Task = std::function<void()>;

  explicit KeyedWorkers(int threads);
  ~KeyedWorkers();

  // After Stop, the task is dropped.
  void Add(const std::string& key, Task task);
  // Finishes the running tasks and drops the waiting ones. Idempotent; not from a task.
  void Stop();
  // No task runs or waits.
  bool idle() const;
  // The number of keys with a running or waiting task.
  size_t busy_keys() const;
  bool AwaitIdle(absl::Duration timeout) const;

 private:
  void Loop();

  mutable absl::Mutex mu_;
  std::map<std::string, std::deque<Task>> waiting_ ABSL_GUARDED_BY(mu_);  // has a key also while its task runs
  std::deque<std::string> ready_ ABSL_GUARDED_BY(mu_);                    // keys whose next task may run
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
