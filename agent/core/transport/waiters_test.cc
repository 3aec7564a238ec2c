#include "agent/core/transport/waiters.h"

#include <thread>

#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

Waiters::Clock::time_point In(std::chrono::milliseconds time) { return Waiters::Clock::now() + time; }

TEST(Waiters, ReturnsWhenNothingUpToItsEntryIsMissing) {
  Waiters waiters;
  Doorbell bell;
  std::thread waiting([&] { EXPECT_TRUE(waiters.Wait(7, In(std::chrono::seconds(20)), &bell).ok()); });
  bell.WaitUntil(In(std::chrono::seconds(20)));  // rung by the waiter
  waiters.Answer([](uint64_t entry) {
    return entry == 7 ? absl::UnavailableError("2 batches are not durable") : absl::OkStatus();
  });
  waiters.Answer([](uint64_t) { return absl::OkStatus(); });
  waiting.join();
}

TEST(Waiters, SaysAtTheDeadlineWhatWasMissingLast) {
  Waiters waiters;
  Doorbell bell;
  std::thread waiting([&] {
    const absl::Status status = waiters.Wait(7, In(std::chrono::milliseconds(200)), &bell);
    EXPECT_EQ(status, absl::DeadlineExceededError("1 tensors are not stored"));
  });
  bell.WaitUntil(In(std::chrono::seconds(20)));
  waiters.Answer([](uint64_t) { return absl::UnavailableError("2 batches are not durable"); });
  waiters.Answer([](uint64_t) { return absl::UnavailableError("1 tensors are not stored"); });
  waiting.join();
  waiters.Answer([](uint64_t) {
    ADD_FAILURE() << "nobody waits any more";
    return absl::OkStatus();
  });
}

TEST(Waiters, ReturnsAtOnceWhatCannotBeWaitedFor) {
  Waiters waiters;
  Doorbell bell;
  std::thread waiting([&] {
    EXPECT_EQ(waiters.Wait(7, In(std::chrono::hours(1)), &bell), absl::DataLossError("there are no files of step 3"));
  });
  bell.WaitUntil(In(std::chrono::seconds(20)));
  waiters.Answer([](uint64_t) { return absl::DataLossError("there are no files of step 3"); });
  waiting.join();
}

TEST(Waiters, WithoutAnAnswerTheSenderIsBusy) {
  Waiters waiters;
  Doorbell bell;
  EXPECT_EQ(waiters.Wait(1, In(std::chrono::milliseconds(1)), &bell),
            absl::DeadlineExceededError("the sender is busy"));
}

}  // namespace
}  // namespace msprobe::core
