#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {

// Where messages of agents are applied: threads of their own, at a lower priority than those of gRPC. What applies a
// batch waits for the log, for room in memory, and for processor time behind the batches of all other agents; a
// question must wait for none of that. gRPC's threads only carry messages, so that they are free to carry a question.
//
// 1. Tasks begin in the order in which they came.
// 2. Destruction runs what is waiting.
// Threads: Run from any, tasks too.
class ApplyThreads {
 public:
  // One a core, but enough that some that wait for another server (a hello) do not hold up the others.
  static int Default();
  // Of nice(2): a third of the processor time of a thread that competes.
  static constexpr int kNiceness = 5;

  explicit ApplyThreads(int threads = Default(), int niceness = kNiceness);
  ~ApplyThreads();

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
