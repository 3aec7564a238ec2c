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

// Runs tasks on a few threads: tasks of one key in order, one at a time; of different keys side by side.
// Destruction stops. Threads: every method from any thread, tasks too.
class KeyedWorkers {
 public:
  using Task = std::function<void()>;

  explicit KeyedWorkers(int threads);
  ~KeyedWorkers();

  // After Stop: forgotten.
  void Add(const std::string& key, Task task);
  // Finishes what runs and forgets what waits. Idempotent; not from a task.
  void Stop();
  // Nothing runs and nothing waits.
  bool idle() const;
  // Keys of which a task runs or waits.
  size_t busy_keys() const;
  bool AwaitIdle(absl::Duration timeout) const;

 private:
  void Loop();

  mutable absl::Mutex mu_;
  std::map<std::string, std::deque<Task>> waiting_ ABSL_GUARDED_BY(mu_);  // a key is here while it runs, too
  std::deque<std::string> ready_ ABSL_GUARDED_BY(mu_);                    // keys whose next task may run
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
