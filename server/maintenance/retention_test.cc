#include "server/maintenance/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_load.h"
#include "server/ingest/session/sessions.h"
#include "server/maintenance/backup.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

KeptRun Kept(const std::string& name, int hour, uint64_t bytes, bool open = false, bool pinned = false) {
  return {name, static_cast<uint32_t>(hour), absl::UnixEpoch() + absl::Hours(hour), bytes, open, pinned};
}

TEST(RunsToRemove, OldestFirstUntilEveryLimitIsKept) {
  const std::vector<KeptRun> runs = {Kept("c", 3, 10), Kept("a", 1, 10), Kept("b", 2, 10), Kept("d", 4, 10)};
  const absl::Time now = absl::UnixEpoch() + absl::Hours(5);
  EXPECT_THAT(RunsToRemove(runs, {}, now), IsEmpty());
  EXPECT_THAT(RunsToRemove(runs, {.age = absl::Hours(2.5)}, now), ElementsAre("a", "b"));
  EXPECT_THAT(RunsToRemove(runs, {.bytes = 25}, now), ElementsAre("a", "b"));
  EXPECT_THAT(RunsToRemove(runs, {.runs = 3}, now), ElementsAre("a"));
}

TEST(RunsToRemove, PinnedAndOpenRunsCountButStay) {
  const std::vector<KeptRun> runs = {Kept("pinned", 1, 10, false, true), Kept("open", 2, 10, true), Kept("old", 3, 10),
                                     Kept("new", 4, 10)};
  const absl::Time now = absl::UnixEpoch() + absl::Hours(100);
  EXPECT_THAT(RunsToRemove(runs, {.bytes = 30}, now), ElementsAre("old"));
  EXPECT_THAT(RunsToRemove(runs, {.age = absl::Hours(1)}, now), ElementsAre("old", "new"));
}

class RetentionTest : public testing::Test {
 protected:
  void SetUp() override { Open(directory_ / "data"); }
  void Open(const std::string& path) {
    sessions_.reset();
    store_.reset();
    StoreOptions options;
    options.directory = path;
    options.now = [this] { return now_; };
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    SessionsOptions sessions;
    sessions.admit = [this](uint32_t run) { return retention_ == nullptr ? absl::OkStatus() : retention_->Admit(run); };
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, sessions);
  }
  // Stores a run of one session with one payload of `bytes` random bytes.
  void Store1(const std::string& run, size_t bytes, bool end = true) {
    ScriptedAgent agent(run, run);
    agent.hello().set_started_unix_us(absl::ToUnixMicros(now_ + agents_clock_ahead_));
    std::mt19937_64 random(std::hash<std::string>()(run));
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    for (uint32_t step = 0; step < 4; ++step) {
      std::string content(bytes / 4, '\0');
      for (char& c : content) c = static_cast<char>(random());
      const std::string hash = agent.CallWithPayload(step, "saved", content);
      agent.StepEnd(step);
      ASSERT_TRUE((*session)->Apply(agent.Take()).ok());
      for (size_t at = 0; at < content.size(); at += 1 << 20) {
        auto added = (*session)->AddPayload(
            ScriptedAgent::Chunk(hash, at, content.substr(at, 1 << 20), at + (1 << 20) >= content.size()));
        ASSERT_TRUE(added.ok()) << added.status();
      }
    }
    if (end) {
      agent.End();
      ASSERT_TRUE((*session)->Apply(agent.Take()).ok());
    }
    ASSERT_TRUE((*session)->AwaitDurable(absl::Seconds(30)).ok());
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto runs = store_->catalogue().Runs();
    if (!runs.ok()) return {runs.status().ToString()};
    for (const storage::RunRow& run : *runs) names.push_back(run.name());
    return names;
  }
  uint64_t DiskBytes() {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_ / "data")) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
    return bytes;
  }

  ScratchDirectory directory_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(24 * 365);
  absl::Duration agents_clock_ahead_;
  Metrics metrics_;
  std::unique_ptr<Retention> retention_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
};

TEST_F(RetentionTest, RemovesByAgeButNeitherPinnedNorOpenRuns) {
  for (const char* run : {"pinned", "old"}) Store1(run, 4000);
  Store1("open", 4000, false);
  ASSERT_TRUE(store_->catalogue().SetPinned("pinned", true).ok());
  EXPECT_EQ(store_->catalogue().SetPinned("none", true).code(), absl::StatusCode::kNotFound);
  now_ += absl::Hours(48);
  Store1("new", 4000);
  Retention retention(store_.get(), &metrics_, {.age = absl::Hours(24)});
  ASSERT_TRUE(retention.Look().ok());
  EXPECT_THAT(Names(), ElementsAre("pinned", "open", "new"));
  EXPECT_EQ(metrics_.Value(Metric::kRunsRemoved), 1);
  ASSERT_TRUE(store_->catalogue().SetPinned("pinned", false).ok());
  ASSERT_TRUE(retention.Look().ok());
  EXPECT_THAT(Names(), ElementsAre("open", "new"));
}

TEST_F(RetentionTest, AnAgentsClockNeitherPinsItsRunNorEvictsOthers) {
  agents_clock_ahead_ = absl::Hours(24 * 3650);
  Store1("ahead", 4000);
  agents_clock_ahead_ = -absl::Hours(24 * 3650);
  now_ += absl::Hours(1);
  Store1("behind", 4000);
  now_ += absl::Hours(1);
  ASSERT_TRUE(Retention(store_.get(), &metrics_, {.runs = 1}).Look().ok());
  EXPECT_THAT(Names(), ElementsAre("behind")) << "the later one, by the server's clock";
  now_ += absl::Hours(22.5);
  ASSERT_TRUE(Retention(store_.get(), &metrics_, {.age = absl::Hours(24)}).Look().ok());
  EXPECT_THAT(Names(), ElementsAre("behind")) << "23.5 hours old";
  now_ += absl::Hours(1);
  ASSERT_TRUE(Retention(store_.get(), &metrics_, {.age = absl::Hours(24)}).Look().ok());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(RetentionTest, OfAnEarlierVersionsSessionTheAgentsClockCountsUnlessItIsAhead) {
  agents_clock_ahead_ = absl::Hours(24 * 3650);
  Store1("ahead", 4000);
  agents_clock_ahead_ = absl::ZeroDuration();
  Store1("right", 4000);
  auto sessions = store_->catalogue().Sessions();
  ASSERT_TRUE(sessions.ok()) << sessions.status();
  for (storage::SessionRow& session : *sessions) {
    session.clear_opened_unix_us();
    ChangeSet changes;
    changes.PutMeta(SessionKey(session.session()), session);
    ASSERT_TRUE(store_->database().Write(changes).ok());
  }
  now_ += absl::Hours(23);
  ASSERT_TRUE(Retention(store_.get(), &metrics_, {.age = absl::Hours(24)}).Look().ok());
  EXPECT_THAT(Names(), ElementsAre("ahead", "right"));
  now_ += absl::Hours(2);
  ASSERT_TRUE(Retention(store_.get(), &metrics_, {.age = absl::Hours(24)}).Look().ok());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(RetentionTest, DeletingGivesTheDiskBack) {
  constexpr size_t kBytes = 24 << 20;
  for (const char* run : {"a", "b", "c"}) Store1(run, kBytes);
  Retention retention(store_.get(), &metrics_, {});
  const uint64_t before = DiskBytes();
  ASSERT_GE(before, 3 * kBytes);
  ASSERT_TRUE(store_->maintenance().DeleteRun("a").ok());
  ASSERT_TRUE(store_->maintenance().DeleteRun("b").ok());
  ASSERT_TRUE(retention.Look().ok());
  EXPECT_LE(DiskBytes(), before - 2 * kBytes);
  EXPECT_THAT(Names(), ElementsAre("c"));
}

TEST_F(RetentionTest, AQuotaRefusesItsRunAlone) {
  Store1("big", 3 << 20, false);
  Store1("small", 4000, false);
  retention_ = std::make_unique<Retention>(store_.get(), &metrics_, RetentionOptions{.run_quota = 2 << 20});
  ASSERT_TRUE(retention_->Look().ok());
  auto refused = sessions_->OpenSession(ScriptedAgent("another", "big").hello());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("its quota is 2 MiB"));
  EXPECT_TRUE(sessions_->OpenSession(ScriptedAgent("one more", "small").hello()).ok());
}

TEST_F(RetentionTest, ABackupUnderLoadIsAPrefixAndAnAgentAheadOfItGoesOnWithAGap) {
  ScriptedLoad load("job", 0, 3);
  auto session = sessions_->OpenSession(load.hello());
  uint64_t sequence = 0;
  auto send = [&](uint64_t batches) {
    for (uint64_t n = 0; n < batches; ++n) {
      auto verdict = (*session)->Apply(load.Batch(++sequence));
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      for (const std::string& hash : verdict->wanted()) {
        ASSERT_TRUE((*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, load.Content(hash), true)).ok());
      }
    }
  };
  send(50);
  load.Batch(2000);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop && sequence < 1900) send(10);
  });
  std::map<std::string, std::string> files;
  std::string path;
  absl::Status status = SendBackup(*store_, directory_ / "data/backups", [&](const v1::BackupChunk& chunk) {
    if (!chunk.path().empty()) path = chunk.path();
    files[path] += chunk.content();
    return true;
  });
  stop = true;
  writer.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "data/backups"));
  const std::string id = store_->catalogue().server_id();
  session->reset();

  for (const auto& [name, content] : files) {
    const std::filesystem::path to = directory_ / ("restored/" + name);
    std::filesystem::create_directories(to.parent_path());
    std::ofstream(to, std::ios::binary) << content;
  }
  Open(directory_ / "restored");
  EXPECT_EQ(store_->catalogue().server_id(), id);
  EXPECT_THAT(load.Check(*store_, 50, {}), IsEmpty());
  const uint64_t held = load.watermark(*store_);
  ASSERT_LE(held, sequence);

  // The agent had 2000 batches acknowledged. Those that the backup lacks are a gap, which the agent reports
  // (SERVER_LOST).
  load.hello().set_freed_through(2000);
  session = sessions_->OpenSession(load.hello());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->durable_through(), 2000u);
  v1::Batch gap;
  gap.set_session(load.session());
  gap.set_batch_sequence(2001);
  gap.add_items()->mutable_marker()->mutable_gap()->set_reason(v1::Marker::Gap::SERVER_LOST);
  EXPECT_TRUE((*session)->Apply(gap).ok());
  EXPECT_EQ(store_->steps().Of(1)->front().second.gaps_size(), 1);
  session->reset();
}

}  // namespace
}  // namespace msprobe::server
