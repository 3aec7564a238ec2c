#include "agent/core/background_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <array>
#include <string>

namespace msprobe::core {
namespace {

int Niceness() { return getpriority(PRIO_PROCESS, 0); }  // of the calling thread

TEST(BackgroundThread, YieldsWithWhatItStartsAndLeavesItsCallerAlone) {
  const int before = Niceness();
  int own = 0, child = 0;
  StartBackgroundThread("background", [&] {
    own = Niceness();
    std::thread([&] { child = Niceness(); }).join();
  }).join();
  EXPECT_EQ(own, std::min(before + 10, 19));
  EXPECT_EQ(child, own);
  EXPECT_EQ(Niceness(), before);
}

TEST(BackgroundThread, NotesItsTimeOnce) {
  const absl::Duration before = BackgroundTime();
  timespec used{};
  StartBackgroundThread("background", [&] {
    do {
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    } while (used.tv_nsec < 2'000'000);
    NoteBackgroundTime();
    NoteBackgroundTime();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  }).join();
  EXPECT_GE(BackgroundTime() - before, absl::Milliseconds(2));
  EXPECT_LE(BackgroundTime() - before, absl::DurationFromTimespec(used));
}

TEST(BackgroundThread, TakesNoSignals) {
  sigset_t of_caller, inside;
  std::string name;
  StartBackgroundThread("background", [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &inside);
    std::array<char, 16> text{};
    pthread_getname_np(pthread_self(), text.data(), text.size());
    name = text.data();
  }).join();
  pthread_sigmask(SIG_SETMASK, nullptr, &of_caller);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    EXPECT_TRUE(sigismember(&inside, signal));
    EXPECT_FALSE(sigismember(&of_caller, signal));
  }
}

}  // namespace
}  // namespace msprobe::core
