#include "server/query/entry_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/metrics.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/store.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kDump[] = R"({"task":"statistics","data":{"a":{"input":[1]},"b":{"output": [NaN]}}})";

class EntryTextTest : public testing::Test {
 protected:
  DumpFiles Write(const std::string& dump, const std::string& construct) {
    DumpFiles files;
    files.dump = directory_ / "dump.json";
    std::ofstream(files.dump) << dump;
    if (!construct.empty()) {
      files.construct = directory_ / "construct.json";
      std::ofstream(files.construct) << construct;
    }
    return files;
  }

  ScratchDirectory directory_;
};

TEST_F(EntryTextTest, GivesTheValueAsItStandsAndTheModulesAroundIt) {
  const DumpFiles files = Write(kDump, R"({"b": ["inner", 3], "inner": "outer", "outer": null, "a": "outer"})");
  auto entry = ReadEntryText(files, "b");
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->json, R"({"output": [NaN]})");
  EXPECT_THAT(entry->modules, ElementsAre("outer", "inner", "b"));
}

TEST_F(EntryTextTest, WithoutAConstructFileThereAreNoModules) {
  auto entry = ReadEntryText(Write(kDump, ""), "a");
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->json, R"({"input":[1]})");
  EXPECT_THAT(entry->modules, ElementsAre("a"));
}

TEST_F(EntryTextTest, ModulesThatAreEachOthersParentsAreRefused) {
  const auto entry = ReadEntryText(Write(kDump, R"({"a": "m", "m": "a"})"), "a");
  EXPECT_THAT(std::string(entry.status().message()), HasSubstr("construct.json: a: its parent m is inside it"));
}

TEST_F(EntryTextTest, ABrokenOrMissingFileIsNamed) {
  const DumpFiles broken = Write("{\"data\": {\"a\": ", "");
  EXPECT_THAT(std::string(ReadEntryText(broken, "a").status().message()), HasSubstr("dump.json: line 1"));
  DumpFiles gone;
  gone.dump = directory_ / "nothing.json";
  EXPECT_EQ(ReadEntryText(gone, "a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EntryTextTest, AStoredStepAnswersAsItsExportWould) {
  StoreOptions options;
  options.directory = directory_ / "data";
  auto store = Store::Open(options);
  ASSERT_TRUE(store.ok()) << store.status();
  Metrics metrics;
  Sessions sessions(store->get(), &metrics, nullptr, SessionsOptions());
  ScriptedAgent agent("agent");
  auto session = sessions.OpenSession(agent.hello());
  ASSERT_TRUE(session.ok()) << session.status();
  agent.Call(0, "add", 3).StepEnd(0);
  ASSERT_TRUE((*session)->Apply(agent.Take()).ok());
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  auto step = (*store)->steps().Open("run", 0, rank);
  ASSERT_TRUE(step.ok()) << step.status();
  auto entry = ReadEntryText(**step, "Torch.add.0.forward");
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_THAT(entry->json, HasSubstr("\"Max\":3.0"));
  EXPECT_EQ(entry->modules.back(), "Torch.add.0.forward");
}

}  // namespace
}  // namespace msprobe::server
