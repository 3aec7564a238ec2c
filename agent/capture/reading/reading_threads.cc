#include "agent/capture/reading/reading_threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <system_error>

#include "agent/core/background_thread.h"

namespace msprobe::capture {
namespace {

constexpr std::chrono::microseconds kSoon{50};

size_t AllowedCores() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? static_cast<size_t>(CPU_COUNT(&allowed)) : 1;
}

}  // namespace

ReadingThreads::ReadingThreads(size_t threads, const char* load) : most_(threads), load_file_(load), owner_(getpid()) {}

ReadingThreads::~ReadingThreads() {
  if (getpid() != owner_) {  // they are the parent's
    for (std::thread& thread : threads_) new (std::nothrow) std::thread(std::move(thread));
    return;
  }
  ends_.store(true, std::memory_order_relaxed);
  rings_.fetch_add(1, std::memory_order_release);
  rings_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadingThreads::Run(size_t parts, Body body) {
  const auto alone = [&] {
    for (size_t part = 0; part < parts; ++part) body(part);
  };
  if (most_ == 0 || parts < 2 || getpid() != owner_) return alone();
  if (busy_.test_and_set(std::memory_order_acquire)) return alone();
  const bool rests = Clock::now() < rests_until_ || !Start();
  const auto idle = rests ? 0 : std::min(static_cast<size_t>(std::max(0, load_->IdleCores())), threads_.size());
  if (idle == 0) {
    busy_.clear(std::memory_order_release);
    return alone();
  }
  body_.store(&body, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  left_.store(++calls_ << kCallShift | parts, std::memory_order_release);
  rings_.fetch_add(1, std::memory_order_release);
  for (size_t i = 0; i < std::min(idle, parts - 1); ++i) rings_.notify_one();
  Work();
  Await(parts);
  busy_.clear(std::memory_order_release);
}

void ReadingThreads::Work() {
  uint64_t left = left_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(left) != 0) {
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire)) continue;
    // The call cannot end before this part is done, so its body is there.
    (*body_.load(std::memory_order_relaxed))(static_cast<uint32_t>(left) - 1);
    done_.fetch_add(1, std::memory_order_release);
    done_.notify_one();
    left = left_.load(std::memory_order_acquire);
  }
}

void ReadingThreads::Await(size_t parts) {
  const auto everything = static_cast<uint32_t>(parts);
  uint32_t done = done_.load(std::memory_order_acquire);
  if (done == everything) return;
  const Clock::time_point began = Clock::now();
  Clock::time_point now = began;
  for (; done != everything; done = done_.load(std::memory_order_acquire)) {
    // A part takes some 10 microseconds. To sleep and to be woken takes longer.
    if (now - began < kSoon) {
      std::this_thread::yield();
    } else {
      done_.wait(done, std::memory_order_acquire);
    }
    now = Clock::now();
  }
  if (now - began > kLongWait) {
    rests_until_ = now + rest_;
    rest_ = std::min<Clock::duration>(2 * rest_, kLongestRest);
  }
}

void ReadingThreads::Help() {
  uint32_t heard = 0;
  while (!ends_.load(std::memory_order_relaxed)) {
    Work();
    rings_.wait(heard, std::memory_order_acquire);
    heard = rings_.load(std::memory_order_acquire);
  }
}

bool ReadingThreads::Start() {
  if (started_) return !threads_.empty();
  started_ = true;
  load_.emplace(load_file_);
  try {
    const size_t threads = std::min(most_, AllowedCores() - 1);
    threads_.reserve(threads);
    while (threads_.size() < threads) {
      threads_.push_back(core::StartBackgroundThread("msprobe-read", [this] { Help(); }));
    }
  } catch (const std::system_error&) {  // there can be no more
  } catch (const std::bad_alloc&) {
  }
  return !threads_.empty();
}

}  // namespace msprobe::capture
