#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace npu_backend {

// Set once, waited for by any thread.
class Signal {
 public:
  void Set();
  bool set() const;
  void Wait() const;

 private:
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  bool set_ = false;
};

// A queue of kernels and a thread that runs them in order, some time after they were put in. Lives as long as the
// process. Thread-safe.
class Stream {
 public:
  static constexpr int64_t kStreams = 8;

  static Stream& Get(int64_t id);  // 0 is the default one

  void Enqueue(std::function<void()> kernel);
  bool idle() const;
  // Waits until all that was put in has run; throws what a kernel threw.
  void Synchronize();

  // While held, no stream begins a kernel: whoever waits for one waits for good.
  static void Hold(bool held);

 private:
  Stream() = default;
  void Run();

  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool running_ = false;  // the thread has been started
  bool busy_ = false;
  std::deque<std::function<void()>> kernels_;
  std::string error_;
};

}  // namespace npu_backend
