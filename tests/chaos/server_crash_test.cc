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
#include <random>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/store/crash_disk.h"
#include "server/store/scratch_directory.h"
#include "tests/chaos/streaming_rank.h"

extern char** environ;

namespace msprobe::server {
namespace {

using testing::IsEmpty;

constexpr uint32_t kRanks = 4;

// 20 of them unless MSPROBE_CHAOS_KILLS says how many.
int Kills() {
  const char* kills = std::getenv("MSPROBE_CHAOS_KILLS");
  return kills == nullptr ? 20 : std::max(1, std::atoi(kills));
}

class CrashingServer {
 public:
  CrashingServer(const ScratchDirectory& directory, const std::string& durability, uint64_t seed) {
    std::vector<std::string> arguments = {MSPROBE_CRASH_SERVER, "--listen=unix:" + directory / "s",
                                          "--data_dir=" + directory / "data", "--durability=" + durability,
                                          "--log_level=warning"};
    setenv("MSPROBE_CRASH_SEED", std::to_string(seed).c_str(), 1);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ);
  }
  ~CrashingServer() { Kill(); }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
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
  uint64_t progress = 0;
  // Without sync the agents are ahead of what is found: a gap, which other tests show. Here one crash is enough.
  const int kills = promised ? Kills() : 1;
  for (int kill = 0; kill < kills; ++kill) {
    {
      CrashingServer server(directory, GetParam(), kill + 1);
      std::vector<std::thread> threads;
      std::atomic<uint32_t> over = 0;
      for (auto& rank : ranks) {
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
      const uint64_t until = acknowledged() + 1 + random() % (kRanks * 150);
      while (over < kRanks && acknowledged() < until) absl::SleepFor(absl::Milliseconds(1));
      server.Kill();
      for (auto& rank : ranks) rank->Cancel();
      for (std::thread& thread : threads) thread.join();
      progress = acknowledged();
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
  EXPECT_GT(progress, static_cast<uint64_t>(kills)) << "hardly anything was acknowledged between the kills";
}

INSTANTIATE_TEST_SUITE_P(EveryDurability, ServerCrashTest, testing::Values("sync", "interval", "os"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace msprobe::server
