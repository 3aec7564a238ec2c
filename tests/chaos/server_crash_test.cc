// kill -9 of the real server at random points under load, with what was not synced really lost.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/store/disk/crash_disk.h"
#include "server/store/disk/scratch_directory.h"
#include "tests/chaos/streaming_rank.h"

extern char** environ;

namespace msprobe::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kRanks = 4;

// 20 of them unless MSPROBE_CHAOS_KILLS says how many.
int Kills() {
  const char* kills = std::getenv("MSPROBE_CHAOS_KILLS");
  return kills == nullptr ? 20 : std::max(1, std::atoi(kills));
}

class CrashingServer {
 public:
  // Syncs fail from so many on.
  CrashingServer(const ScratchDirectory& directory, const std::string& durability, uint64_t seed,
                 uint64_t syncs = UINT64_MAX) {
    std::vector<std::string> arguments = {MSPROBE_CRASH_SERVER, "--listen=unix:" + directory / "s",
                                          "--data_dir=" + directory / "data", "--durability=" + durability,
                                          "--log_level=warning"};
    setenv("MSPROBE_CRASH_SEED", std::to_string(seed).c_str(), 1);
    setenv("MSPROBE_CRASH_SYNCS", std::to_string(syncs).c_str(), 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, (directory / "log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~CrashingServer() { Kill(); }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // As waitpid gives it.
  int AwaitEnd() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

class ServerCrashTest : public testing::TestWithParam<std::string> {};

TEST_P(ServerCrashTest, FindsAPrefixOfEveryRankAndAllThatWasAcknowledged) {
  grpc_init();
  const bool promised = GetParam() == "sync";
  ScratchDirectory directory;
  const std::string address = "unix:" + directory / "s";
  std::vector<std::unique_ptr<StreamingRank>> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<StreamingRank>("job", rank, 77 + rank));
  }
  std::mt19937_64 random(4242);
  int under_load = 0;
  // Without sync the agents are ahead of what is found: a gap, which other tests show. Here one crash is enough.
  const int kills = promised ? Kills() : 1;
  for (int kill = 0; kill < kills; ++kill) {
    {
      CrashingServer server(directory, GetParam(), kill + 1);
      std::vector<std::thread> threads;
      std::atomic<uint32_t> over = 0;
      for (auto& rank : ranks) {
        rank->Prepare();
        threads.emplace_back([&] {
          rank->Run(address, 400);
          ++over;
        });
      }
      auto acknowledged = [&] {
        uint64_t sum = 0;
        for (auto& rank : ranks) sum += rank->acknowledged();
        return sum;
      };
      const uint64_t before = acknowledged();
      const uint64_t until = before + 1 + random() % (kRanks * 150);
      // Between two looks at what was acknowledged.
      while (over < kRanks && acknowledged() < until) absl::SleepFor(absl::Milliseconds(1));
      server.Kill();
      for (auto& rank : ranks) rank->Cancel();
      for (std::thread& thread : threads) thread.join();
      under_load += acknowledged() > before;
    }
    CrashDisk disk(directory / "data", 1);
    StoreOptions options;
    options.directory = directory / "data";
    options.env = disk.env();
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << "after kill " << kill << ": " << store.status();
    for (auto& rank : ranks) {
      if (!promised) rank->ForgetPromises();
      ASSERT_THAT(rank->Check(**store), IsEmpty()) << "after kill " << kill;
    }
  }
  EXPECT_EQ(under_load, kills) << "before other kills nothing was acknowledged: they test nothing";
}

// RocksDB takes a log that is touched again after its sync failed for a mistake, and aborts: the server must be gone by
// then, whatever else was writing.
TEST(FailedSync, EndsTheServerWithAMessageAndLosesNothingAcknowledged) {
  grpc_init();
  for (uint64_t syncs : {20, 30, 31, 60, 61, 120}) {
    ScratchDirectory directory;
    std::vector<std::unique_ptr<StreamingRank>> ranks;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks.push_back(std::make_unique<StreamingRank>("job", rank, 7 + rank));
    }
    std::vector<std::thread> threads;
    int status = 0;
    {
      CrashingServer server(directory, "sync", syncs, syncs);
      for (auto& rank : ranks) {
        threads.emplace_back([&] { rank->Run("unix:" + directory / "s", 4000); });
      }
      status = server.AwaitEnd();
    }
    for (auto& rank : ranks) rank->Cancel();
    for (std::thread& thread : threads) thread.join();
    std::stringstream log;
    log << std::ifstream(directory / "log").rdbuf();
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " after " << syncs << " syncs\n" << log.str();
    EXPECT_EQ(WEXITSTATUS(status), 1);
    EXPECT_THAT(log.str(), HasSubstr("the disk of the data directory failed"));
    CrashDisk disk(directory / "data", 1);
    StoreOptions options;
    options.directory = directory / "data";
    options.env = disk.env();
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    for (auto& rank : ranks) EXPECT_THAT(rank->Check(**store), IsEmpty()) << "after " << syncs << " syncs";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryDurability, ServerCrashTest, testing::Values("sync", "interval", "os"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace msprobe::server
