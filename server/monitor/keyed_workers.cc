#include "server/monitor/keyed_workers.h"

#include <utility>

namespace msprobe::server {

KeyedWorkers::KeyedWorkers(int threads) {
  absl::MutexLock lock(&mu_);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

KeyedWorkers::~KeyedWorkers() { Stop(); }

void KeyedWorkers::Stop() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void KeyedWorkers::Add(const std::string& key, Task task) {
  absl::MutexLock lock(&mu_);
  if (stopping_) return;
  auto [queue, inserted] = waiting_.try_emplace(key);
  queue->second.push_back(std::move(task));
  if (inserted) ready_.push_back(key);
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

void KeyedWorkers::Loop() {
  absl::MutexLock lock(&mu_);
  auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || !ready_.empty(); };
  while (true) {
    mu_.Await(absl::Condition(&woken));
    if (stopping_) return;
    const std::string key = std::move(ready_.front());
    ready_.pop_front();
    Task task = std::move(waiting_[key].front());
    mu_.Unlock();
    task();
    task = nullptr;
    mu_.Lock();
    auto queue = waiting_.find(key);
    queue->second.pop_front();
    if (queue->second.empty()) {
      waiting_.erase(queue);
    } else {
      ready_.push_back(key);
    }
  }
}

}  // namespace msprobe::server
