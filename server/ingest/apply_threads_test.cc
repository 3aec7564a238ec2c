#include "server/ingest/apply_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "absl/synchronization/notification.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;

TEST(ApplyThreadsTest, OneThreadRunsTasksInTheirOrderAndAllOfThemBeforeItEnds) {
  std::vector<int> ran;
  {
    ApplyThreads threads(1);
    for (int i = 0; i < 3; ++i) threads.Run([&ran, i] { ran.push_back(i); });
  }
  EXPECT_THAT(ran, ElementsAre(0, 1, 2));
}

TEST(ApplyThreadsTest, ATaskThatWaitsDoesNotHoldUpTheOthers) {
  absl::Notification waits, done;
  ApplyThreads threads(2);
  threads.Run([&] { waits.WaitForNotification(); });
  threads.Run([&] { done.Notify(); });
  done.WaitForNotification();
  waits.Notify();
}

TEST(ApplyThreadsTest, TheyAreOfLowerPriorityThanTheThreadThatMadeThem) {
  absl::Notification done;
  int of_it = 0;
  const int of_this = getpriority(PRIO_PROCESS, 0);
  ApplyThreads threads(1, of_this < 19 ? of_this + 1 : 19);
  threads.Run([&] {
    of_it = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(of_it, of_this < 19 ? of_this + 1 : 19);
}

}  // namespace
}  // namespace msprobe::server
