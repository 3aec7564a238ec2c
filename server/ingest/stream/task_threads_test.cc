#include "server/ingest/stream/task_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/synchronization/notification.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;

TEST(TaskThreadsTest, OneThreadRunsTasksInTheirOrderAndAllOfThemBeforeItEnds) {
  std::vector<int> ran;
  {
    TaskThreads threads(1, 0);
    for (int i = 0; i < 3; ++i) threads.Run([&ran, i] { ran.push_back(i); });
  }
  EXPECT_THAT(ran, ElementsAre(0, 1, 2));
}

TEST(TaskThreadsTest, ATaskThatWaitsDoesNotHoldUpTheOthers) {
  absl::Notification waits, done;
  TaskThreads threads(2, 0);
  threads.Run([&] { waits.WaitForNotification(); });
  threads.Run([&] { done.Notify(); });
  done.WaitForNotification();
  waits.Notify();
}

TEST(TaskThreadsTest, TheyHaveThePriorityThatIsAskedFor) {
  const int of_this = getpriority(PRIO_PROCESS, 0);
  for (int more : {0, 1}) {
    absl::Notification done;
    int of_it = -1;
    TaskThreads threads(1, more);
    threads.Run([&] {
      of_it = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
      done.Notify();
    });
    done.WaitForNotification();
    EXPECT_EQ(of_it, std::min(of_this + more, 19));
  }
}

}  // namespace
}  // namespace msprobe::server
