#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/capture/reading/machine_load.h"
#include "agent/stats/executor.h"

namespace msprobe::capture {

// Threads that read large tensors together with the program's thread, while cores are idle.
//
// 1. Nobody waits for a thread to begin: the caller takes part after part itself, and the threads take those that are
//    left when they are awake. So a call is never slower than the caller alone by more than waking costs, except for a
//    thread that loses its core in the middle of a part.
// 2. Against that: no thread is woken unless the kernel says that a core is idle. Where the caller still had to wait
//    for longer than kLongWait, no thread is woken for a while, each time twice as long.
// 3. One call at a time is helped. Another thread's call meanwhile runs alone.
// 4. The threads start at the first call that they can help: fewer than the cores that the caller may use.
// Threads: any. In a forked child every call runs alone. Throws nothing.
class ReadingThreads final : public stats::Executor {
 public:
  static constexpr std::chrono::microseconds kLongWait{500};
  static constexpr std::chrono::seconds kShortestRest{1};
  static constexpr std::chrono::seconds kLongestRest{64};

  // `threads`: how many at most. `load`: as MachineLoad has it.
  explicit ReadingThreads(size_t threads, const char* load = "/proc/loadavg");
  ~ReadingThreads() override;
  ReadingThreads(const ReadingThreads&) = delete;
  ReadingThreads& operator=(const ReadingThreads&) = delete;

  void Run(size_t parts, absl::FunctionRef<void(size_t part)> body) override;

 private:
  using Clock = std::chrono::steady_clock;
  using Body = absl::FunctionRef<void(size_t part)>;

  // The number of parts that nobody has taken, below the number of the call. So a thread that wakes late cannot take a
  // part of another call than it looked at.
  static constexpr int kCallShift = 32;

  void Help();
  // Takes and runs parts until none is left.
  void Work();
  // Starts the threads. False: there are none.
  bool Start();
  void Await(size_t parts);

  const size_t most_;
  const char* const load_file_;
  const int owner_;        // process id
  std::atomic_flag busy_;  // held by the one call that is helped, which alone uses the next six members
  bool started_ = false;
  std::optional<MachineLoad> load_;
  std::vector<std::thread> threads_;
  uint64_t calls_ = 0;
  Clock::time_point rests_until_ = Clock::time_point::min();
  Clock::duration rest_ = kShortestRest;

  std::atomic<const Body*> body_{nullptr};
  std::atomic<uint64_t> left_{0};
  std::atomic<uint32_t> done_{0};   // parts that have returned
  std::atomic<uint32_t> rings_{0};  // changes where there is work, or the end
  std::atomic<bool> ends_{false};
};

}  // namespace msprobe::capture
