#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/ingest/stream/task_threads.h"

namespace msprobe::server {

// Runs tasks on a pool of threads (TaskThreads). Tasks with the same key run one at a time and in order; tasks with
// different keys run side by side. The destructor calls Stop. Threads: any, also from a task.
class KeyedWorkers {
 public:
  using Task = std::function<void()>;

  explicit KeyedWorkers(int threads);
  ~KeyedWorkers();

  // After Stop, the task is dropped.
  void Add(const std::string& key, Task task);
  // Finishes the running tasks and drops the waiting ones. Idempotent; not from a task.
  void Stop();
  // Whether tasks of the key wait; of one that runs, behind it.
  bool HasWaiting(const std::string& key) const;
  // No task runs or waits.
  bool idle() const;
  // The number of keys with a running or waiting task.
  size_t busy_keys() const;
  bool AwaitIdle(absl::Duration timeout) const;

 private:
  // Runs the first waiting task of a key, by threads_.
  void RunNext(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  std::map<std::string, std::deque<Task>> waiting_ ABSL_GUARDED_BY(mu_);  // has a key also while its task runs
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<TaskThreads> threads_ ABSL_GUARDED_BY(mu_);  // null when stopping
};

}  // namespace msprobe::server
