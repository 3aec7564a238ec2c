// Data races of our own whose innermost frame is the code that protoc generates: ThreadSanitizer must report them, so
// scripts/races_not_ours.txt may not hide them. Built for ThreadSanitizer alone.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/record.pb.h"

namespace {

std::atomic<int> reports{0};

}  // namespace

// Hooks of the sanitizer's library, which must see them.
#define FOR_THE_SANITIZER extern "C" __attribute__((visibility("default")))

// Called for each report that no suppression hides.
FOR_THE_SANITIZER void __tsan_on_report(void*) { ++reports; }

// What is reported here is what is wanted, each time.
FOR_THE_SANITIZER const char* __tsan_default_options() {
  return "exitcode=0:suppress_equal_addresses=0:suppress_equal_stacks=0";
}

namespace msprobe {
namespace {

// The reports of two threads that nothing orders.
int ReportsOf(const std::function<void()>& one, const std::function<void()>& other) {
  const int before = reports;
  std::thread first(one);
  std::thread second(other);
  first.join();
  second.join();
  return reports - before;
}

TEST(MessageRaceTest, ANumberThatOneSetsAndOneReadsIsReported) {
  v1::Rank rank;
  uint32_t read = 0;
  EXPECT_GT(ReportsOf([&] { rank.set_number(1); }, [&] { read = rank.number(); }), 0);
}

TEST(MessageRaceTest, AMessageInAMessageThatTwoMakeIsReported) {
  v1::AgentMessage message;
  EXPECT_GT(ReportsOf([&] { message.mutable_batch(); }, [&] { message.mutable_batch(); }), 0);
}

TEST(MessageRaceTest, AMessageThatOneCopiesAndOneSetsIsReported) {
  v1::Rank rank;
  v1::Rank copy;
  EXPECT_GT(ReportsOf([&] { copy = rank; }, [&] { rank.set_number(1); }), 0);
}

}  // namespace
}  // namespace msprobe
