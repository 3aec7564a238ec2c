#include "server/monitor/step_exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

class StepExportsTest : public testing::Test {
 protected:
  StepExportsTest() {
    StoreOptions options;
    options.directory = directory_ / "data";
    store_ = *Store::Open(options);
    MonitorParts parts{.store = store_.get(), .metrics = &metrics_, .watched = {}};
    parts.files.dump_path = directory_ / "dump";
    parts.room = &room_;
    monitors_ = std::make_unique<StepMonitors>(StandardMonitors(), parts);
    SessionsOptions options_of_sessions;
    options_of_sessions.capabilities = {"export"};
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, monitors_.get(), options_of_sessions);
    EXPECT_TRUE(monitors_->Begin(sessions_.get()).ok());
  }
  ~StepExportsTest() override {
    monitors_->Stop();
    sessions_.reset();
  }

  // A process that began at `ticks` captures Torch.{name} in step 3. Its session arrives now.
  void Capture(const std::string& name, const std::string& run, uint64_t ticks) {
    ScriptedAgent agent(name, run);
    agent.hello().set_boot_id("boot");
    agent.hello().set_process_start_ticks(ticks);
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->Apply(agent.Call(3, name).StepEnd(3).Take()).ok());
    ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
    ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(20)));
  }
  std::string Dump(int step = 3) const {
    std::ifstream file(directory_ / ("dump/step" + std::to_string(step) + "/rank0/dump.json"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Store> store_;
  DumpRoom room_{{.dump_path = directory_ / "dump", .data_directory = directory_ / "data"}};
  std::unique_ptr<StepMonitors> monitors_;
  std::unique_ptr<Sessions> sessions_;
};

TEST_F(StepExportsTest, AProcessThatBeganLaterReplacesAStep) {
  Capture("first", "run", 100);
  EXPECT_THAT(Dump(), HasSubstr("Torch.first.0"));
  Capture("second", "run", 200);
  EXPECT_THAT(Dump(), HasSubstr("Torch.second.0"));
}

// The step is exported, or asked for, after the settings have changed.
TEST_F(StepExportsTest, AStepIsShownAsItWasCaptured) {
  ScriptedAgent agent("a", "run");
  const std::string level = agent.hello().settings().level();
  auto session = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(session.ok()) << session.status();
  agent.Call(3, "before").StepEnd(3).SettingsChanged("mix").Call(4, "after").StepEnd(4);
  agent.SettingsChanged("L0").Call(5, "last").StepEnd(5).End();
  ASSERT_TRUE((*session)->Apply(agent.Take()).ok());
  ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
  ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(20)));
  EXPECT_THAT(Dump(3), HasSubstr("\"level\": \"" + level + "\""));
  EXPECT_THAT(Dump(4), HasSubstr("\"level\": \"mix\""));
  EXPECT_THAT(Dump(5), HasSubstr("\"level\": \"L0\""));
}

// A later process sends what an earlier one had spooled.
TEST_F(StepExportsTest, WhatAProcessLeftDoesNotReplaceAStepOfALaterOne) {
  Capture("later", "run", 200);
  Capture("left", "run", 100);
  EXPECT_THAT(Dump(), HasSubstr("Torch.later.0"));
  Capture("left too", "another run", 150);
  EXPECT_THAT(Dump(), HasSubstr("Torch.later.0"));
}

// Its tensors come one by one when the program has ended.
TEST_F(StepExportsTest, StepsBehindTheEndOfTheirSessionAreLinkedToEachOther) {
  struct statfs system {};
  std::filesystem::create_directories(directory_ / "dump");
  ASSERT_EQ(statfs((directory_ / "dump").c_str(), &system), 0);
  if (system.f_type == TMPFS_MAGIC) GTEST_SKIP() << "on tmpfs nothing is linked";
  ScriptedAgent agent("a", "run");
  auto session = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<std::pair<std::string, std::string>> payloads;
  for (uint32_t step = 0; step < 4; ++step) {
    const std::string content = Cat("content", step);
    payloads.emplace_back(agent.CallWithPayload(step, "add", content), content);
    agent.StepEnd(step);
  }
  ASSERT_TRUE((*session)->Apply(agent.End().Take()).ok());
  for (const auto& [hash, content] : payloads) {
    ASSERT_TRUE((*session)->AddPayload(ScriptedAgent::Chunk(hash, 0, content, true)).ok());
    ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
    ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(20)));
  }
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(std::filesystem::hard_link_count(directory_ / Cat("dump/step", step, "/rank0/construct.json")), 4U)
        << step;
  }
}

TEST_F(StepExportsTest, AStepThatIsStillOpenIsExportedOnRequest) {
  ScriptedAgent agent("a", "run");
  auto session = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Apply(agent.Call(3, "add").Take()).ok());
  ASSERT_TRUE(store_->database().AwaitDurable(absl::Seconds(20)).ok());
  monitors_->OnExportRequested(agent.hello().session(), 3);
  ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(20)));
  EXPECT_EQ(monitors_->waiting(), 0u);
  EXPECT_THAT(Dump(), HasSubstr("Torch.add.0"));
}

// A process connects again and asks, while the same step waits for its turn here.
TEST_F(StepExportsTest, AStepIsWrittenOnce) {
  Capture("add", "run", 100);
  struct stat first {
  }, now{};
  const std::string dump = directory_ / "dump/step3/rank0/dump.json";
  ASSERT_EQ(stat(dump.c_str(), &first), 0);
  const std::ifstream held(dump);  // so that no other file can have its number
  const std::string session = ScriptedAgent("add", "run").hello().session();
  monitors_->OnExportAwaited(session, 3);
  monitors_->OnStepFinished(session, 3, v1::StepSummary::COMPLETE);
  ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(20)));
  ASSERT_EQ(stat(dump.c_str(), &now), 0);
  EXPECT_EQ(now.st_ino, first.st_ino);
}

// A lost session came back while files of what it had lost with were written.
TEST_F(StepExportsTest, FilesOfLessThanAStepHasAreNotItsExport) {
  Capture("add", "run", 100);
  auto session = sessions_->FindOrLoad(ScriptedAgent("add", "run").hello().session());
  ASSERT_TRUE(session.ok()) << session.status();
  const std::string key =
      StepKey{(*session)->row().run(), RankCode((*session)->row().hello().rank()), 3, (*session)->row().epoch()}
          .Encode();
  const auto stored = [&] { return **store_->database().Find<storage::StepRow>(key); };
  storage::StepRow whole = stored();
  ASSERT_TRUE(whole.exported());
  whole.set_exported(false);
  ChangeSet changes;
  changes.PutMeta(key, whole);
  ASSERT_TRUE(store_->database().Write(changes).ok());

  v1::StepExported exported;
  exported.set_step(3);
  storage::StepRow less = whole;
  less.set_state(v1::StepSummary::INCOMPLETE);
  ASSERT_TRUE((*session)->NoteExported(exported, &less).ok());
  EXPECT_FALSE(stored().exported());
  ASSERT_TRUE((*session)->NoteExported(exported, &whole).ok());
  EXPECT_TRUE(stored().exported());
}

// As of a server that was killed before it had written the files, of a process that was killed after it had sent all.
TEST_F(StepExportsTest, WhoeverSendsWhatAProcessLeftHearsWhatIsNotExported) {
  const std::filesystem::path in_the_way = directory_ / "dump/step3";
  std::filesystem::create_directories(in_the_way.parent_path());
  std::ofstream(in_the_way) << "no directory";
  Capture("left", "run", 100);
  EXPECT_EQ(Dump(), "");
  ScriptedAgent agent("left", "run");
  auto process = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_THAT((*process)->welcome().unexported_steps(), testing::IsEmpty()) << "a process knows for what it waits";

  std::filesystem::remove(in_the_way);
  room_.Look(absl::Now());
  ASSERT_EQ(room_.state().steps(), 0U);
  agent.hello().add_capabilities("left");
  auto adopter = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(adopter.ok()) << adopter.status();
  EXPECT_THAT((*adopter)->welcome().unexported_steps(), testing::ElementsAre(3));
  ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(20)));
  EXPECT_THAT(Dump(), HasSubstr("Torch.left.0"));
  room_.Look(absl::Now());
  EXPECT_EQ(room_.state().steps(), 1U) << "its files take room as those of any step";
  auto again = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT((*again)->welcome().unexported_steps(), testing::IsEmpty());
}

}  // namespace
}  // namespace msprobe::server
