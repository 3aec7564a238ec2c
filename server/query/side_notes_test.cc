#include "server/query/side_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/query/analysis_context.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SideNotesTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    store_ = *Store::Open(options);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    context_.store = store_.get();
    context_.layouts = &layouts_;
    context_.paths_allowed = true;
  }
  void Stream(ScriptedAgent& agent) {
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE((*session)->Apply(agent.Take()).ok());
    live_.push_back(*std::move(session));
  }
  OpenedSource Run(const std::string& name) { return *OpenedSource::OpenRun(name, context_); }
  std::vector<std::string> NotesOf(const OpenedSource& source) {
    return NotesOfMissingRecords(source, source.places());
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::vector<std::shared_ptr<Session>> live_;
  TableLayouts layouts_;
  AnalysisContext context_;
};

TEST_F(SideNotesTest, StepsThatNeverEndedAndRecordsLeftOutAreTold) {
  for (uint32_t rank : {0u, 1u, 2u}) {
    ScriptedAgent agent("rank" + std::to_string(rank), "job", rank);
    agent.Call(0, "add").StepEnd(0).Call(1, "add").StepEnd(1);
    if (rank == 1) agent.Gap(1, 3, v1::Marker::Gap::DROPPED);
    agent.Call(2, "add");
    if (rank < 2) agent.End(/*clean=*/false);
    Stream(agent);
  }
  EXPECT_THAT(
      NotesOf(Run("job")),
      ElementsAre("step 1 of job, rank 1: incomplete, records of it were left out",
                  "step 2 of job, rank 2: more of it may come, it has not ended",
                  "step 2 of job, rank 0 and 1 other rank: incomplete, its program was gone before the step's end"));
}

TEST_F(SideNotesTest, OneSentenceTellsOfAllStepsThatLackTheSame) {
  ScriptedAgent agent("rank0", "job");
  for (uint32_t step = 0; step < 9; ++step) {
    agent.Call(step, "add").StepEnd(step);
    if (step % 2 == 1) agent.Gap(step, 3, v1::Marker::Gap::DROPPED);
  }
  agent.End();
  Stream(agent);
  EXPECT_THAT(NotesOf(Run("job")),
              ElementsAre("4 steps of job, from 1 to 7, rank 0, each: incomplete, records of it were left out"));
}

TEST_F(SideNotesTest, OfStepsThatEndedNothingIsTold) {
  ScriptedAgent agent("rank0", "job");
  agent.Call(0, "add").StepEnd(0).End();
  Stream(agent);
  EXPECT_THAT(NotesOf(Run("job")), IsEmpty());
}

TEST_F(SideNotesTest, AnExportSaysItByItsFile) {
  for (const char* rank : {"rank0", "rank1"}) {
    const std::filesystem::path files = std::filesystem::path(directory_ / "dump/step4") / rank;
    std::filesystem::create_directories(files);
    std::ofstream(files / "dump.json") << R"({"task":"statistics","level":"L1","data":{}})";
  }
  std::ofstream(directory_ / "dump/step4/rank1/INCOMPLETE") << "why\n";
  v1::Source source;
  source.set_path(directory_ / "dump");
  auto opened = OpenedSource::Open(source, context_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(NotesOf(*opened), ElementsAre("step 4 of " + source.path() +
                                            ", rank 1: incomplete, as the file INCOMPLETE beside its dump.json says"));
}

TEST_F(SideNotesTest, TheStepsOfTheGoldenSideHaveTheirOwnNumbers) {
  ScriptedAgent agent("rank0", "job");
  agent.Call(0, "add").StepEnd(0).Call(1, "add").End(/*clean=*/false);
  Stream(agent);
  const OpenedSource source = Run("job");
  const std::vector<LayoutPair> pairs = {{{source.places()[0]}, {source.places()[0]}}};
  EXPECT_THAT(NotesOfMissingRecords(source, source, pairs), IsEmpty());
  EXPECT_THAT(NotesOfMissingRecords(source, source, pairs, 1),
              ElementsAre("step 1 of job, rank 0: incomplete, its program was gone before the step's end"));
}

TEST(NoteOfLevelsTest, OnlyWhereBothSayAnother) {
  StepTable target;
  StepTable golden;
  target.level = "mix";
  EXPECT_EQ(NoteOfLevels(target, golden), "");
  golden.level = "mix";
  EXPECT_EQ(NoteOfLevels(target, golden), "");
  golden.level = "L1";
  EXPECT_EQ(NoteOfLevels(target, golden),
            "the target was captured at level mix, the golden side at L1: what only one of these levels records has no "
            "partner, and the calls of a name may be numbered differently");
}

}  // namespace
}  // namespace msprobe::server
