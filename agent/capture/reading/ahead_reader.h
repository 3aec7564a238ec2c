#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "agent/capture/reading/machine_load.h"
#include "agent/capture/reading/remembered_statistics.h"
#include "agent/core/config/config.h"
#include "agent/core/mutex.h"
#include "agent/core/pool.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::capture {

// Reads tensors on a thread of its own while the program computes, before they are captured for the first time.
//
// 1. Nobody waits for it: what it has not read when it is captured, the program's thread reads itself.
// 2. It begins with the next tensor, and stays in front of the program if it reads faster than the program computes.
//    Where it is overtaken kOvertaken times, it goes on with the last tensor. So the two meet somewhere, however slow
//    this thread is, and little is read in vain.
// 3. While no core is idle, it does nothing: it would only delay the program.
// 4. The thread ends when it has read everything that it was given.
// Threads: any. In a forked child nothing is read. Throws nothing.
class AheadReader {
 public:
  static constexpr int kOvertaken = 3;

  struct Tensor {
    RememberedStatistics::Ahead ahead;
    // Plain floats, all of its memory.
    const void* data;
    stats::DType dtype;
    absl::InlinedVector<int64_t, 4> sizes, strides;
    core::SummaryMode mode;  // kStatistics or kMd5
    bool is_wide;            // as core::Leaf has it
  };

  // `remembered` outlives this. `load`: as MachineLoad has it.
  explicit AheadReader(RememberedStatistics* remembered, const char* load = "/proc/loadavg")
      : remembered_(*remembered), load_(load) {}
  // Waits for the thread, which ends at once.
  ~AheadReader();
  AheadReader(const AheadReader&) = delete;
  AheadReader& operator=(const AheadReader&) = delete;

  // Reads these, which are captured in this order, in place of what was given before.
  void Read(core::PooledDeque<Tensor> tensors);
  // Reads nothing more.
  void Forget() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the thread has something to do.
  bool reads() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // False: nothing more is to be read.
  bool AwaitIdleCore() const;

  const pid_t owner_ = getpid();
  RememberedStatistics& remembered_;
  const MachineLoad load_;
  std::atomic<bool> goes_on_{false};

  mutable core::Mutex mu_;
  bool runs_ ABSL_GUARDED_BY(mu_) = false;
  core::PooledDeque<Tensor> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
