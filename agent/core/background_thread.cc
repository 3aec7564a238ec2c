#include "agent/core/background_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace msprobe::core {
namespace {

constexpr int kNiceness = 10;
constexpr int kLowest = 19;

std::atomic<int64_t> background_ns{0};

class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Changes only the calling thread, because Linux takes thread ids here.
void Yield() {
  const int niceness = getpriority(PRIO_PROCESS, 0) + kNiceness;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), std::min(niceness, kLowest));
}

}  // namespace

std::thread StartBackgroundThread(const char* name, std::function<void()> body) {
  const NoSignals inherited;
  std::thread thread([body = std::move(body)] {
    Yield();
    body();
  });
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

void NoteBackgroundTime() {
  thread_local int64_t noted = 0;
  timespec used;
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return;
  const int64_t now = int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
  background_ns.fetch_add(now - std::exchange(noted, now), std::memory_order_relaxed);
}

absl::Duration BackgroundTime() { return absl::Nanoseconds(background_ns.load(std::memory_order_relaxed)); }

}  // namespace msprobe::core
