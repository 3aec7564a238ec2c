#include "tests/npu_backend/stream.h"

#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/npu_backend/device_memory.h"

namespace npu_backend {
namespace {

// Whether streams may begin kernels. Never destroyed: the streams' threads outlive main.
struct Gate {
  std::mutex mu;
  std::condition_variable changed;
  bool held = false;

  static Gate& Get() {
    static Gate* const gate = new Gate;
    return *gate;
  }
};

}  // namespace

void Signal::Set() {
  std::lock_guard lock(mu_);
  set_ = true;
  changed_.notify_all();
}

bool Signal::set() const {
  std::lock_guard lock(mu_);
  return set_;
}

void Signal::Wait() const {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return set_; });
}

Stream& Stream::Get(int64_t id) {
  static Stream* const streams = new Stream[kStreams];
  return streams[id];
}

void Stream::Enqueue(std::function<void()> kernel) {
  std::lock_guard lock(mu_);
  if (!std::exchange(running_, true)) std::thread([this] { Run(); }).detach();
  kernels_.push_back(std::move(kernel));
  changed_.notify_all();
}

bool Stream::idle() const {
  std::lock_guard lock(mu_);
  return kernels_.empty() && !busy_;
}

void Stream::Synchronize() {
  ++Counters::Get().synchronizations;
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return kernels_.empty() && !busy_; });
  if (!error_.empty()) throw std::runtime_error("npu_backend: a kernel failed: " + std::exchange(error_, ""));
}

void Stream::Hold(bool held) {
  Gate& gate = Gate::Get();
  std::lock_guard lock(gate.mu);
  gate.held = held;
  gate.changed.notify_all();
}

void Stream::Run() {
  while (true) {
    std::function<void()> kernel;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return !kernels_.empty(); });
      kernel = std::move(kernels_.front());
      kernels_.pop_front();
      busy_ = true;
    }
    {
      Gate& gate = Gate::Get();
      std::unique_lock lock(gate.mu);
      gate.changed.wait(lock, [&gate] { return !gate.held; });
    }
    std::string error;
    try {
      kernel();
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    kernel = nullptr;
    std::lock_guard lock(mu_);
    busy_ = false;
    if (!error.empty() && error_.empty()) error_ = std::move(error);
    changed_.notify_all();
  }
}

}  // namespace npu_backend
