#include "server/monitor/keyed_workers.h"

#include <utility>

namespace msprobe::server {

KeyedWorkers::KeyedWorkers(int threads) : threads_(std::make_unique<TaskThreads>(threads, 0)) {}

KeyedWorkers::~KeyedWorkers() { Stop(); }

void KeyedWorkers::Stop() {
  std::unique_ptr<TaskThreads> threads;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    threads = std::move(threads_);
  }
  threads.reset();
}

void KeyedWorkers::Add(const std::string& key, Task task) {
  absl::MutexLock lock(&mu_);
  if (stopping_) return;
  auto [queue, inserted] = waiting_.try_emplace(key);
  queue->second.push_back(std::move(task));
  if (inserted) threads_->Run([this, key] { RunNext(key); });
}

bool KeyedWorkers::HasWaiting(const std::string& key) const {
  absl::MutexLock lock(&mu_);
  const auto queue = waiting_.find(key);
  return queue != waiting_.end() && queue->second.size() > 1;
}

bool KeyedWorkers::idle() const {
  absl::MutexLock lock(&mu_);
  return waiting_.empty();
}

size_t KeyedWorkers::busy_keys() const {
  absl::MutexLock lock(&mu_);
  return waiting_.size();
}

bool KeyedWorkers::AwaitIdle(absl::Duration timeout) const {
  absl::MutexLock lock(&mu_);
  auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return waiting_.empty(); };
  return mu_.AwaitWithTimeout(absl::Condition(&idle), timeout);
}

void KeyedWorkers::RunNext(const std::string& key) {
  Task task;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) return;
    task = std::move(waiting_[key].front());
  }
  task();
  task = nullptr;
  absl::MutexLock lock(&mu_);
  auto queue = waiting_.find(key);
  queue->second.pop_front();
  if (queue->second.empty()) {
    waiting_.erase(queue);
  } else if (!stopping_) {
    threads_->Run([this, key] { RunNext(key); });
  }
}

}  // namespace msprobe::server
