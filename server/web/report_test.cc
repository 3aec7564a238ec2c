#include "server/web/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/disk/scratch_directory.h"
#include "server/web/script_bundle.h"

namespace msprobe::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    store_ = *Store::Open(options);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    context_.query = {.store = store_.get(),
                      .sessions = sessions_.get(),
                      .metrics = &metrics_,
                      .activity = &activity_,
                      .spool_directory = directory_ / "incoming"};
    context_.analysis = {.store = store_.get(), .activity = &activity_, .metrics = &metrics_, .layouts = &layouts_};
    context_.cancelled = [] { return false; };
    context_.tell = [](size_t, size_t) { return true; };
    Put("good", "div", 1);
    Put("bad", "div", std::numeric_limits<float>::quiet_NaN());
  }

  void Put(const std::string& run, const std::string& name, float result) {
    ScriptedAgent agent(run, run);
    agent.Enter(0, name, 1).Exit(0, name, result).StepEnd(0).End();
    ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  TableLayouts layouts_;
  Activity activity_{absl::FromUnixSeconds(1000)};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  WebContext context_;
};

TEST_F(ReportTest, ItHoldsItsScriptsStylesAndAnswersAndNamesNoOtherFile) {
  const auto report = MakeReport(context_, {"bad", "good"});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, AllOf(HasSubstr("\"op\":\"Torch.div.0.forward\""), HasSubstr("\"kind\":\"differences\""),
                             HasSubstr("const $grid = (() => {"), HasSubstr("--accent:")));
  EXPECT_THAT(*report, AllOf(Not(HasSubstr("\nimport ")), Not(HasSubstr("\nexport ")), Not(HasSubstr(" src=")),
                             Not(HasSubstr("fetch(")), Not(HasSubstr("@ANSWERS@"))));
}

TEST_F(ReportTest, OfOneRunNothingIsCompared) {
  const auto report = MakeReport(context_, {"good", ""});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, AllOf(Not(HasSubstr("\"kind\":\"divergence\"")), HasSubstr("\"kind\":\"heat_map\"")));
}

TEST_F(ReportTest, ItSaysWhatTheLastStepLacks) {
  ScriptedAgent agent("sums", "sums");
  agent.Call(0, "add").StepEnd(0).CallWithChecksum(1, "add").StepEnd(1).End();
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  const auto report = MakeReport(context_, {"sums", ""});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, HasSubstr("no statistics were captured in 1 step of sums: "));
}

TEST_F(ReportTest, NamesEndNoElement) {
  Put("</script><b>", "</script><i>", 1);
  ReportQuestion question{"</script><b>", ""};
  question.run_title = "<!--";
  const auto report = MakeReport(context_, question);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report,
              AllOf(Not(HasSubstr("</script><")), Not(HasSubstr("<!--")), HasSubstr("\\u003c/script>\\u003ci>")));
}

TEST_F(ReportTest, HoweverLongNamesAreItStaysBelowItsBoundAndSaysWhatItLeavesOut) {
  ScriptedAgent agent("long", "long");
  const std::string name(3000, '<');  // six bytes each in the file
  for (int i = 0; i < 400; ++i) {
    const std::string op = name + std::to_string(i);
    agent.Enter(0, op, 1).Exit(0, op, std::numeric_limits<float>::quiet_NaN());
  }
  agent.StepEnd(0).End();
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  for (const char* golden : {"", "bad"}) {
    const auto report = MakeReport(context_, {"long", golden});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_LE(report->size(), kMaxReportBytes);
    EXPECT_THAT(*report, HasSubstr("\"command\":\"msprobe-client overflow long\""));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(MakeReport(context_, {"bad", "", std::string(5000, 'x')}).status()));
}

TEST_F(ReportTest, ItHoldsTheGraphOfBothSides) {
  for (const char* run : {"left", "right"}) {
    ScriptedAgent agent(run, run);
    agent.Call(0, "add", 2).Call(0, "div", *run).StepEnd(0).End();
    ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  }
  const auto report = MakeReport(context_, {"left", "right"});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, AllOf(HasSubstr("\"side\":\"target\""), HasSubstr("\"side\":\"golden\""),
                             HasSubstr("\"first_name\":\"Torch.div.0.forward\"")));
}

TEST_F(ReportTest, ARunThatIsNotThereIsNamed) {
  EXPECT_EQ(MakeReport(context_, {"none", ""}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(MakeReport(context_, {"bad", "none"}).status().message()), HasSubstr("none"));
}

TEST(ScriptBundleTest, EachModuleComesOnceBeforeThoseThatImportIt) {
  const std::string script = BundledScript("/report.js", "/server.js", "/recorded.js");
  const size_t text = script.find("const $text = (() => {"), grid = script.find("const $grid = (() => {");
  ASSERT_NE(text, std::string::npos);
  EXPECT_LT(text, grid);
  EXPECT_EQ(script.find("const $text = (() => {", text + 1), std::string::npos);
  EXPECT_THAT(script, AllOf(HasSubstr("const { element, ticks } = $text;"), HasSubstr("return { Grid };"),
                            Not(HasSubstr("$server = ")), HasSubstr("} = $recorded;")));
}

}  // namespace
}  // namespace msprobe::server
