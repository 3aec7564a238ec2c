#include "agent/capture/reading/reading_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/stats/statistics.h"

namespace msprobe::capture {
namespace {

using ::testing::Each;

// What /proc/loadavg says on a machine where so many threads run.
class Load {
 public:
  explicit Load(int running) : path_(testing::TempDir() + "load" + std::to_string(getpid())) {
    std::ofstream(path_) << "0.10 0.20 0.30 " << running << "/400 4711\n";
  }
  ~Load() { std::remove(path_.c_str()); }
  const char* path() const { return path_.c_str(); }

 private:
  const std::string path_;
};

// How often each part ran.
std::vector<int> Ran(ReadingThreads& threads, size_t parts) {
  std::vector<std::atomic<int>> ran(parts);
  threads.Run(parts, [&](size_t part) { ran[part].fetch_add(1, std::memory_order_relaxed); });
  std::vector<int> counts;
  for (const std::atomic<int>& count : ran) counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

TEST(ReadingThreadsTest, EachPartRunsOnceHoweverManyThreadsThereAre) {
  const Load load(0);
  for (size_t most : {0, 1, 7}) {
    ReadingThreads threads(most, load.path());
    for (size_t call = 0; call < 2000; ++call) {
      ASSERT_THAT(Ran(threads, 1 + call % 70), Each(1)) << most << " threads, call " << call;
    }
  }
}

TEST(ReadingThreadsTest, CallsOfSeveralThreadsDoNotMix) {
  const Load load(0);
  ReadingThreads threads(3, load.path());
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 500; ++call) ASSERT_THAT(Ran(threads, 40), Each(1));
    });
  }
  for (std::thread& caller : callers) caller.join();
}

size_t ThreadsOf(ReadingThreads& threads) {
  std::mutex mu;
  std::set<std::thread::id> seen;
  threads.Run(200, [&](size_t) {
    const std::lock_guard lock(mu);
    seen.insert(std::this_thread::get_id());
    std::this_thread::yield();
  });
  return seen.size();
}

TEST(ReadingThreadsTest, AnotherThreadHelpsWhereACoreIsIdle) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "this process may use one core";
  const Load load(1);
  ReadingThreads threads(1, load.path());
  while (ThreadsOf(threads) < 2) {
  }  // the scheduler may let the caller run all parts before the other begins
}

TEST(ReadingThreadsTest, NobodyIsWokenWhereEveryCoreIsTaken) {
  const Load load(1000);
  ReadingThreads threads(7, load.path());
  for (int call = 0; call < 200; ++call) ASSERT_EQ(ThreadsOf(threads), 1u);
}

TEST(ReadingThreadsTest, AForkedChildRunsEverythingAlone) {
  const Load load(0);
  ReadingThreads threads(3, load.path());
  Ran(threads, 100);
  const pid_t child = fork();
  if (child == 0) {
    bool right = true;
    for (int count : Ran(threads, 100)) right = right && count == 1;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(Ran(threads, 100), Each(1));
}

// Elements whose sum depends on the order in which blocks are added up, with zeros of both signs, a NaN and infinities.
std::vector<float> Elements(size_t count, bool finite) {
  std::vector<float> elements(count);
  uint32_t state = 1;
  for (float& element : elements) {
    state = state * 1664525 + 1013904223;
    element = static_cast<float>(static_cast<int32_t>(state)) * (state % 7 == 0 ? 1e20f : 1e-20f);
  }
  elements[count / 2] = -0.0f;
  if (!finite) {
    elements[count / 3] = std::numeric_limits<float>::quiet_NaN();
    elements[count - 1] = std::numeric_limits<float>::infinity();
  }
  return elements;
}

TEST(ReadingThreadsTest, StatisticsAreTheSameToTheBitWithHelp) {
  const Load load(0);
  ReadingThreads threads(3, load.path());
  for (size_t count : {stats::kSharedBytes / 4, size_t{12'345'677}}) {
    for (bool finite : {true, false}) {
      const std::vector<float> elements = Elements(count, finite);
      const auto size = static_cast<int64_t>(count);
      const int64_t stride = 1;
      const stats::TensorView view{
          .data = elements.data(), .dtype = stats::DType::kFloat32, .sizes = {&size, 1}, .strides = {&stride, 1}};
      const stats::Statistics alone = stats::ComputeStatistics(view);
      const stats::Statistics helped = stats::ComputeStatistics(view, &threads);
      const auto same = [](double one, double other) {
        return std::bit_cast<uint64_t>(one) == std::bit_cast<uint64_t>(other);
      };
      EXPECT_TRUE(same(alone.max, helped.max) && same(alone.min, helped.min)) << count;
      EXPECT_TRUE(same(alone.finite_mean, helped.finite_mean)) << alone.finite_mean << " " << helped.finite_mean;
      EXPECT_TRUE(same(alone.finite_norm, helped.finite_norm)) << alone.finite_norm << " " << helped.finite_norm;
      EXPECT_TRUE(same(alone.variance, helped.variance)) << alone.variance << " " << helped.variance;
      EXPECT_EQ(alone.zero_count, helped.zero_count);
      EXPECT_EQ(alone.nan_count, helped.nan_count);
      EXPECT_EQ(alone.positive_inf_count, helped.positive_inf_count);
    }
  }
}

}  // namespace
}  // namespace msprobe::capture
