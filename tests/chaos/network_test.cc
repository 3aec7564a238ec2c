// Real agents and the real server, with an unruly network between them.

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "agent/core/session.h"
#include "server/maintenance/store_check.h"
#include "server/store/disk/scratch_directory.h"
#include "tests/chaos/planned_check.h"
#include "tests/chaos/planned_rank.h"
#include "tests/chaos/unruly_proxy.h"
#include "tests/chaos/unruly_relay.h"

namespace msprobe::server {
namespace {

using testing::IsEmpty;

constexpr uint32_t kRanks = 2, kRecords = 200;
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr uint64_t kEnough = 6;

// MSPROBE_CHAOS_SECONDS is how long each disturbance lasts: some seconds, and minutes of a night.
absl::Duration Disturbance() {
  const char* seconds = std::getenv("MSPROBE_CHAOS_SECONDS");
  return absl::Seconds(seconds == nullptr ? 3 : std::max(1, std::atoi(seconds)));
}

class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("MSPROBE_LOG_LEVEL", "3", 0);  // a line for each connection that is cut would hide what a test finds
    grpc_init();
    std::vector<std::string> arguments = {MSPROBE_SERVER, "--listen=unix:" + directory_ / "s",
                                          "--data_dir=" + directory_ / "data", "--log_level=off"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    server_ = fork();
    ASSERT_GE(server_, 0);
    if (server_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive a test that aborts
    execv(argv[0], argv.data());
    _exit(127);
  }
  void TearDown() override {
    if (server_ > 0) EndServer(SIGKILL);
  }
  int EndServer(int signal) {
    int status = -1;
    kill(server_, signal);
    waitpid(server_, &status, 0);
    server_ = -1;
    return status;
  }

  std::unique_ptr<core::Session> Agent(uint32_t rank) {
    core::SessionOptions options;
    options.run = "job";
    options.rank = {true, rank};
    options.server = "unix:" + directory_ / "p";
    options.spool_directory = directory_ / ("spool" + std::to_string(rank));
    options.memory_ceiling_bytes = 4 << 20;  // what the network holds up goes through the spool
    auto session = core::Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  // Every rank emits steps for as long as the disturbance lasts, and until there was enough of it; then all is calm and
  // everybody ends.
  void Drive(const std::function<bool()>& enough, const std::function<void()>& calm) {
    std::vector<std::unique_ptr<core::Session>> sessions;
    std::vector<PlannedRank> ranks;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      sessions.push_back(Agent(rank));
      ranks.emplace_back(sessions.back().get(), rank, kRecords);
    }
    const absl::Time start = absl::Now();
    auto over = [&] {
      const absl::Duration lasted = absl::Now() - start;
      return lasted > Disturbance() + kPatience || (lasted > Disturbance() && enough());
    };
    for (; !over(); ++steps_) {
      for (PlannedRank& rank : ranks) rank.EmitStep(steps_);
      absl::SleepFor(absl::Milliseconds(20));  // what a step of theirs takes
    }
    calm();
    for (auto& session : sessions) {
      absl::Status drained = session->Wait(absl::Seconds(60));
      EXPECT_TRUE(drained.ok()) << drained;
      EXPECT_EQ(session->counters().fragments_dropped, 0u);
      EXPECT_EQ(session->counters().payloads_dropped, 0u);
      absl::Status closed = session->Close(true, absl::Seconds(60));
      EXPECT_TRUE(closed.ok()) << closed;
    }
  }

  void CheckStored() {
    EXPECT_EQ(EndServer(SIGTERM), 0);
    StoreOptions options;
    options.directory = directory_ / "data";
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(CheckPlanned(**store, {.run = "job",
                                         .rank = rank,
                                         .records_a_step = kRecords,
                                         .acknowledged = steps_,
                                         .steps = steps_,
                                         .gaps = false}),
                  IsEmpty());
    }
    auto report = CheckStore(**store);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->damages, IsEmpty());
    EXPECT_EQ(report->payloads, uint64_t{kRanks} * steps_ * kRecords / PlannedRank::kPayloadEvery);
  }

  ScratchDirectory directory_;
  pid_t server_ = -1;
  uint32_t steps_ = 0;
};

TEST_F(NetworkTest, ConnectionsCutAtAnyByteLoseAndDoubleNothing) {
  UnrulyProxy proxy(directory_ / "p", directory_ / "s", 11);
  proxy.CutAfter(600'000);
  Drive([&] { return proxy.cuts() >= kEnough; }, [&] { proxy.CutAfter(0); });
  EXPECT_GE(proxy.cuts(), kEnough) << "hardly anything was cut: this test tests nothing";
  CheckStored();
}

TEST_F(NetworkTest, DelayedPiecesHoldNobodyUp) {
  UnrulyProxy proxy(directory_ / "p", directory_ / "s", 12);
  proxy.Delay(absl::Milliseconds(4));
  Drive([] { return true; }, [&] { proxy.Delay(absl::ZeroDuration()); });
  CheckStored();
}

TEST_F(NetworkTest, AgentsOutlastAProxyThatIsGone) {
  UnrulyProxy proxy(directory_ / "p", directory_ / "s", 13);
  proxy.Gone(true);
  Drive([] { return true; }, [&] { proxy.Gone(false); });
  EXPECT_GT(proxy.cuts(), 0u);
  CheckStored();
}

TEST_F(NetworkTest, BatchesSentTwiceAndConnectionsThatOvertakeEachOtherChangeNothing) {
  UnrulyRelay relay("unix:" + directory_ / "p", "unix:" + directory_ / "s", 14);
  auto enough = [&] { return relay.duplicates() >= kEnough && relay.cuts() >= kEnough && relay.overtaken() > 0; };
  Drive(enough, [&] { relay.Calm(); });
  EXPECT_TRUE(enough()) << relay.duplicates() << " duplicates, " << relay.cuts() << " cuts, " << relay.overtaken()
                        << " messages overtaken: this test tests nothing";
  RecordProperty("duplicates", static_cast<int>(relay.duplicates()));
  RecordProperty("cuts", static_cast<int>(relay.cuts()));
  RecordProperty("overtaken", static_cast<int>(relay.overtaken()));
  CheckStored();
}

}  // namespace
}  // namespace msprobe::server
