#include "server/web/web_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "server/analysis/compare/comparison.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/alarms.h"
#include "server/store/disk/scratch_directory.h"
#include "server/web/assets.h"
#include "server/web/compared_json.h"

namespace msprobe::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Parameters = std::map<std::string, std::string>;

// A client that keeps what it gets, and leaves when a test tells it to.
class FakeStream : public HttpStream {
 public:
  bool Write(std::string_view bytes) override {
    if (gone_) return false;
    text_ += bytes;
    return true;
  }
  bool gone() override { return gone_; }

  bool gone_ = false;
  std::string text_;
};

class WebServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    ScriptedAgent agent("a", "job");
    agent.Call(0, "add", 2).Call(0, "div", 1).StepEnd(0).Call(1, "add", -3);
    agent.Enter(1, "div", 1).Exit(1, "div", std::numeric_limits<float>::quiet_NaN()).StepEnd(1).End();
    ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
    Make(nullptr);
  }
  // A rank whose division gives these results, one a step.
  void AddRank(const std::string& run, uint32_t rank, const std::vector<float>& results) {
    ScriptedAgent agent(run + std::to_string(rank), run, rank);
    for (uint32_t step = 0; step < results.size(); ++step) {
      agent.Enter(step, "div", 1).Exit(step, "div", results[step]).StepEnd(step);
    }
    agent.End();
    ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  }
  void Make(Tokens* tokens) {
    QueryContext query{.store = store_.get(),
                       .sessions = sessions_.get(),
                       .metrics = &metrics_,
                       .activity = &activity_,
                       .spool_directory = directory_ / "incoming"};
    AnalysisContext analysis{.store = store_.get(), .activity = &activity_, .metrics = &metrics_, .layouts = &layouts_};
    service_ = std::make_unique<WebService>(query, analysis, tokens, &refusals_, [this] { return now_; });
  }
  HttpResponse Get(const std::string& path, Parameters query = {}, const std::string& bearer = "") {
    return service_->Answer({path, std::move(query), bearer, peer_});
  }
  // The lines of an answer.
  std::string Ask(const std::string& what, Parameters query = {}) {
    HttpResponse response = Get("/api/" + what, std::move(query));
    EXPECT_EQ(response.status, 200) << response.body;
    FakeStream stream;
    if (response.stream) response.stream(stream);
    return stream.text_;
  }
  static Parameters Of(Parameters more) {
    more.insert({{"run", "job"}, {"rank", "rank0"}, {"statistic", "max"}});
    return more;
  }

  std::string peer_ = "10.0.0.1";  // who asks
  ScratchDirectory directory_;
  Metrics metrics_;
  RefusalLog refusals_;
  TableLayouts layouts_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Activity activity_{now_};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<WebService> service_;
};

TEST_F(WebServiceTest, ThePageAndItsFilesAreHereAndNothingElse) {
  EXPECT_THAT(Get("/").body, HasSubstr("<script type=\"module\" src=\"/app.js\">"));
  EXPECT_EQ(Get("/app.js").type, "text/javascript; charset=utf-8");
  for (const char* path : {"/../etc/passwd", "/index.html", "//app.js", "/api/", "/api/nothing", "/api/runs/", ""}) {
    EXPECT_EQ(Get(path).status, 404) << path;
  }
}

TEST_F(WebServiceTest, ThePageLoadsNothingFromElsewhereAndHasNoInlineScript) {
  for (const char* path : {"/",          "/app.js",    "/choice.js",     "/colours.js",   "/grid.js",  "/keep.js",
                           "/live.js",   "/map.js",    "/origin.js",     "/panes.js",     "/ranks.js", "/record.js",
                           "/runs.js",   "/server.js", "/stack.js",      "/text.js",      "/trend.js", "/verdict.js",
                           "/style.css", "/graph.js",  "/graph_view.js", "/histogram.js", "/icon.svg"}) {
    const std::string text = Get(path).body;
    EXPECT_FALSE(text.empty()) << path;
    std::string_view rest = text;
    for (size_t at = rest.find("://"); at != std::string_view::npos; at = rest.find("://")) {
      rest.remove_prefix(at + 3);
      EXPECT_TRUE(rest.starts_with("www.w3.org/2000/svg")) << path << ": " << rest.substr(0, 40);
    }
    EXPECT_THAT(text, AllOf(Not(HasSubstr("<script>")), Not(HasSubstr(" style=\"")), Not(HasSubstr("innerHTML")),
                            Not(HasSubstr("eval("))))
        << path;
  }
}

TEST_F(WebServiceTest, Runs) {
  const std::string text = Ask("runs");
  EXPECT_THAT(text, StartsWith("{\"answer\":[{\"run\":\"job\","));
  EXPECT_THAT(text, AllOf(HasSubstr("\"ranks\":[\"rank0\"]"), HasSubstr("\"steps\":2"), HasSubstr("\"nan_tensors\":1"),
                          HasSubstr("\"missing\":\"\"}\n")));
}

TEST_F(WebServiceTest, HeatMap) {
  const std::string text = Ask("heat_map", Of({{"tensors", "Torch.*.output.0"}}));
  EXPECT_THAT(text, StartsWith("{\"progress\":["));
  EXPECT_THAT(text,
              AllOf(HasSubstr("\"layers\":[\"Torch.add\",\"Torch.div\"]"), HasSubstr("\"columns\":[[0,0],[1,1]]"),
                    HasSubstr("[\"Torch.div.0.forward.output.0\",\"Torch.div.0.forward\"]"),
                    // 2, -3 (whose maximum is -3), 1, NaN
                    HasSubstr("\"values\":\"AAAAQAAAQMAAAIA/AADAfw==\""), HasSubstr("\"steps\":2,\"steps_read\":2")));
}

TEST_F(WebServiceTest, OverflowItsOriginsTrendAndRecord) {
  EXPECT_THAT(Ask("overflow", Of({})),
              AllOf(HasSubstr("\"rows\":[{\"ranks\":[\"rank0\",\"rank0\"],\"states\":\"fn\",\"nan\":[0,1],"
                              "\"inf\":[0,0]}]"),
                    HasSubstr("\"ranks\":1,\"ranks_with\":1")));
  EXPECT_THAT(Ask("origins", Of({})),
              AllOf(HasSubstr("\"step\":1,\"rank\":\"rank0\",\"op\":\"Torch.div.0.forward\""),
                    HasSubstr("\"origin\":\"computation\""), HasSubstr("\"nan\":true,\"infinity\":false")));
  EXPECT_THAT(Ask("origins", Of({{"last", "0"}})), HasSubstr("\"answer\":[]"));
  EXPECT_THAT(Ask("trend", Of({{"tensor", "Torch.add.0.forward.output.0"}})),
              HasSubstr("\"value\":[[2.0,2.0,0,0],[-3.0,-3.0,0,0]]"));
  EXPECT_THAT(Ask("trend", Of({{"tensor", "Torch.div.0.forward.output.0"}, {"golden", "job"}})),
              AllOf(HasSubstr("\"value\":[[1.0,1.0,0,0],[null,null,1,0]]"), HasSubstr("\"golden\":[[1.0,1.0,0,0]")));
  const std::string record = Ask("record", Of({{"step", "1"}, {"name", "Torch.div.0.forward"}}));
  EXPECT_THAT(record, AllOf(HasSubstr("\"full_name\":\"Torch.div.0.forward\""), Not(HasSubstr("Torch.add"))));
}

TEST_F(WebServiceTest, ScalarsAreTrendsByTheirNames) {
  ScriptedAgent agent("scalars", "job");
  agent.Log(0, {{"loss", 4}}).Log(1, {{"loss", 2}, {"lr", 0.5}}).End();
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  EXPECT_THAT(Ask("scalars", {{"run", "job"}}), HasSubstr("\"answer\":[\"loss\",\"lr\"]"));
  EXPECT_THAT(Ask("trend", Of({{"tensor", "loss"}})), HasSubstr("\"value\":[[4.0,4.0,0,0],[2.0,2.0,0,0]]"));
}

TEST_F(WebServiceTest, TheVerdictIsTheFirstOriginOfAllRanks) {
  AddRank("job", 1, {2, 1});
  AddRank("job", 2, {std::numeric_limits<float>::quiet_NaN(), 1});
  const std::string text = Ask("verdict", {{"run", "job"}});
  EXPECT_THAT(text, AllOf(HasSubstr("\"origin\":{\"step\":0,\"rank\":\"rank2\",\"op\":\"Torch.div.0.forward\""),
                          HasSubstr("\"suspects\":2,\"read\":1")));
  EXPECT_THAT(Ask("overflow", {{"run", "job"}}), AllOf(HasSubstr("\"states\":\"fn\""), HasSubstr("\"states\":\"ff\""),
                                                       HasSubstr("\"states\":\"nf\""), HasSubstr("\"ranks_with\":2")));
  EXPECT_THAT(Ask("overflow", {{"run", "job"}, {"rows", "1"}}),
              HasSubstr("{\"ranks\":[\"rank0\",\"rank2\"],\"states\":\"nn\",\"nan\":[1,1],\"inf\":[0,0]}"))
      << "rows of several ranks show the worst of them";
}

TEST_F(WebServiceTest, WithoutARankTheHeatMapHasARowForEach) {
  AddRank("job", 1, {8, 9});
  const std::string text = Ask("heat_map", {{"run", "job"}, {"statistic", "max"}, {"tensors", "Torch.div.*.output.0"}});
  EXPECT_THAT(text, AllOf(HasSubstr("\"layers\":[\"rank0\",\"rank1\"]"),
                          HasSubstr("\"values\":\"AACAPwAAwH8AAABBAAAQQQ==\""),  // 1, NaN, 8, 9
                          HasSubstr("\"layers_of\":\"AAAAAAAAAAABAAAAAQAAAA==\""), HasSubstr("\"steps\":2")));
}

TEST_F(WebServiceTest, ARunSaysWhoMadeIt) {
  const std::string text = Ask("run", {{"run", "job"}});
  EXPECT_THAT(text, AllOf(HasSubstr("\"level\":"), HasSubstr("\"processes\":[{\"rank\":\"rank0\",\"host\":"),
                          HasSubstr("\"other_processes\":0")));
}

TEST_F(WebServiceTest, TwoRunsDivergeFirst) {
  EXPECT_THAT(Ask("divergence", {{"run", "job"}, {"golden", "job"}}), HasSubstr("{\"answer\":{},"));
  AddRank("one", 0, {2, 1, 5});
  AddRank("other", 0, {2, 1, 6});
  EXPECT_THAT(Ask("divergence", {{"run", "one"}, {"golden", "other"}}),
              AllOf(HasSubstr("{\"divergence\":{\"step\":2,\"rank\":\"rank0\""),
                    HasSubstr("\"op\":\"Torch.div.0.forward\""), HasSubstr("\"blame\":\"computation\"")));
}

TEST_F(WebServiceTest, WhereARunEndedInAStepWhatItLacksIsNotedAndNoDivergence) {
  ScriptedAgent whole("w", "whole"), ended_early("e", "ended early");
  whole.Call(0, "add").Call(0, "div").StepEnd(0).End();
  ended_early.Call(0, "add").Enter(0, "div").End(false);
  for (ScriptedAgent* agent : {&whole, &ended_early}) {
    ASSERT_TRUE((*sessions_->OpenSession(agent->hello()))->Apply(agent->Take()).ok());
  }
  EXPECT_THAT(Ask("divergence", {{"run", "ended early"}, {"golden", "whole"}}),
              HasSubstr("{\"answer\":{\"notes\":[\"step 0 of ended early, rank 0: incomplete, "));
  EXPECT_THAT(Ask("verdict", {{"run", "ended early"}}),
              HasSubstr("\"suspects\":0,\"read\":0,\"notes\":[\"step 0 of ended early, rank 0: incomplete, "));
  EXPECT_THAT(Ask("verdict", {{"run", "whole"}}), HasSubstr("{\"answer\":{\"suspects\":0,\"read\":0},"));
}

TEST_F(WebServiceTest, AlarmsOfBeforeWhatWasFoundAreNoted) {
  AddRank("watched", 0, {1, 1, std::numeric_limits<float>::quiet_NaN()});
  auto run = store_->catalogue().FindRun("watched");
  ASSERT_TRUE(run.ok()) << run.status();
  const auto raise = [&](uint32_t number, uint32_t step) {
    v1::Alarm alarm;
    alarm.set_number(number);
    alarm.set_step(step);
    alarm.set_rule("loss is finite");
    alarm.set_series("train/loss");
    alarm.set_why("it is NaN");
    ChangeSet changes;
    Alarms::Put(run->number(), alarm, changes);
    ASSERT_TRUE(store_->database().Write(changes).ok());
  };
  const auto verdict = [this] { return Ask("verdict", {{"run", "watched"}}); };
  raise(1, 2);
  EXPECT_THAT(verdict(), AllOf(HasSubstr("\"origin\":{\"step\":2,"), Not(HasSubstr("notes"))));
  raise(2, 1);
  EXPECT_THAT(verdict(),
              HasSubstr("\"notes\":[\"2 alarms, the first at step 1 (loss is finite), train/loss: it is NaN\"]"));
}

TEST_F(WebServiceTest, WhatOneSideLacksHasNoNumbers) {
  AddRank("one", 0, {2, 1, 5});
  ScriptedAgent agent("more", "more");
  agent.Call(0, "add").Call(0, "div").Call(0, "mul").StepEnd(0).End();
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  EXPECT_THAT(
      Ask("differences", {{"run", "one"}, {"golden", "more"}}),
      HasSubstr("\"statistic\":\"\",\"dtype\":\"\",\"shape\":\"\",\"target\":null,\"golden\":null,\"excess\":null"));
}

TEST_F(WebServiceTest, WhatWasComparedByItsContentHasItsWorstElements) {
  v1::ComparedTensor row;
  row.set_basis(static_cast<v1::VerdictBasis>(Basis::kContent));
  row.set_verdict(static_cast<v1::RowVerdict>(Verdict::kDiffers));
  row.set_target_value(1);
  row.set_golden_value(2);
  row.set_excess(3);
  JsonWriter json(/*strict=*/true);
  json.StartObject();
  WriteCompared(json, row);
  json.EndObject();
  EXPECT_THAT(json.Take(), HasSubstr("\"target\":1.0,\"golden\":2.0,\"excess\":3.0"));
}

TEST_F(WebServiceTest, AStepThatGoesOnIsNotedByNoVerdict) {
  ScriptedAgent agent("goes on", "goes on");
  agent.Call(0, "add");
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  EXPECT_THAT(Ask("verdict", {{"run", "goes on"}}), HasSubstr("{\"answer\":{\"suspects\":0,\"read\":0},"));
}

TEST_F(WebServiceTest, TheVerdictNotesWhatTheFirstAndTheLastStepLack) {
  // Of three steps, these have checksums alone.
  const auto verdict = [this](const std::string& run, const std::set<uint32_t>& steps) {
    ScriptedAgent agent(run, run);
    for (uint32_t step = 0; step < 3; ++step) {
      (steps.contains(step) ? agent.CallWithChecksum(step, "add") : agent.Call(step, "add")).StepEnd(step);
    }
    EXPECT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.End().Take()).ok());
    return Ask("verdict", {{"run", run}});
  };
  EXPECT_THAT(verdict("none", {}), HasSubstr("{\"answer\":{\"suspects\":0,\"read\":0},"));
  const std::string note = "\"notes\":[\"no statistics were captured in ";
  EXPECT_THAT(verdict("first", {0}), HasSubstr(note + "1 step of first: "));
  EXPECT_THAT(verdict("last", {2}), HasSubstr(note + "1 step of last: "));
  EXPECT_THAT(verdict("all", {0, 1, 2}), HasSubstr(note + "2 steps of all: ")) << "those that were read";
}

TEST_F(WebServiceTest, OfEqualDifferencesTheEarliestComesFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  AddRank("finite", 0, {1, 1, 1, 1, 1, 1});
  AddRank("broken", 0, {1, nan, nan, nan, nan, nan});
  EXPECT_THAT(Ask("differences", {{"run", "broken"}, {"golden", "finite"}, {"limit", "1"}}),
              AllOf(HasSubstr("{\"rows\":[{\"step\":1,"), HasSubstr("\"differences\":5")));
}

TEST_F(WebServiceTest, TheGraphBeginsWithTheWayToWhereTheTroubleBegan) {
  const std::string text = Ask("graph", Of({}));
  EXPECT_THAT(text, AllOf(HasSubstr("\"step\":1,\"steps\":2"), HasSubstr("\"first_name\":\"Torch.div.0.forward\""),
                          HasSubstr("\"open\":["), HasSubstr("\"Apis_Between_Modules.0\""),
                          HasSubstr("\"Torch.add.0.forward\",\".output.0\""), HasSubstr("\"NaN\",3,\"\"]")));
  const std::string closed = Ask("graph", Of({{"step", "1"}, {"open", "0"}}));
  EXPECT_THAT(closed, AllOf(HasSubstr("\"Apis_Between_Modules.0\""), Not(HasSubstr("\"Torch.add.0.forward\",\""))));
  const std::string filled = Ask("graph", Of({{"step", "1"}, {"open", "0"}, {"fill", "3"}}));
  EXPECT_THAT(filled, AllOf(HasSubstr("\"open\":[]"), HasSubstr("\"Torch.add.0.forward\",\"")));
  EXPECT_EQ(Ask("graph", Of({{"step", "1"}, {"open", "0"}, {"fill", "2"}})), closed) << "three would be too many";
  EXPECT_THAT(Ask("graph", Of({{"step", "0"}, {"open", "0"}, {"show", "Torch.add.0.forward"}})),
              AllOf(HasSubstr("\"step\":0"), HasSubstr("\"Torch.add.0.forward\",\""), HasSubstr("\"first\":-1")));
}

TEST_F(WebServiceTest, AGraphIsNotFilledBeyondWhatIsSent) {
  ScriptedAgent agent("wide", "wide");
  for (uint32_t call = 0; call < 1600; ++call) agent.Call(0, Cat("add", call), 1);
  agent.StepEnd(0).End();
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  const Parameters wide = {{"run", "wide"}, {"rank", "rank0"}, {"open", "0"}, {"fill", "4294967295"}};
  EXPECT_THAT(Ask("graph", wide), AllOf(HasSubstr("\"Apis_Between_Modules.0\""), Not(HasSubstr("\"Torch.add"))));
}

TEST_F(WebServiceTest, TheGraphOfTwoRunsHasVerdictsOnBothSides) {
  ScriptedAgent agent("b", "other");
  agent.Call(0, "add", 2).Call(0, "div", 1).StepEnd(0).Call(1, "add", -3).Call(1, "div", 4).StepEnd(1).End();
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  for (const char* side : {"target", "golden"}) {
    const std::string text = Ask("graph", Of({{"golden", "other"}, {"step", "1"}, {"side", side}}));
    EXPECT_THAT(text, AllOf(HasSubstr("\"compared\":true"), HasSubstr("\"first_name\":\"Torch.div.0.forward\""),
                            HasSubstr("\"blame\":\"input\"")))
        << side;
  }
  const std::string same = Ask("graph", Of({{"golden", "other"}, {"step", "0"}}));
  EXPECT_THAT(same, AllOf(HasSubstr("\"compared\":true"), HasSubstr("\"first\":-1"), HasSubstr("\"blame\":\"\"")));
}

TEST_F(WebServiceTest, ASearchOfTheGraphTellsTheWorstFirst) {
  const std::string text = Ask("graph_search", Of({{"step", "1"}, {"text", "TORCH."}}));
  EXPECT_THAT(text, HasSubstr("\"found\":2"));
  EXPECT_LT(text.find("Torch.div.0.forward\",3"), text.find("Torch.add.0.forward\",0")) << text;
  EXPECT_THAT(Ask("graph_search", Of({{"text", "nowhere"}})), HasSubstr("{\"found\":0,\"nodes\":[]}"));
}

TEST_F(WebServiceTest, AGraphGrowsWithItsStep) {
  ScriptedAgent agent("c", "live");
  auto session = sessions_->OpenSession(agent.hello());
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->Apply(agent.Call(0, "add", 2).Take()).ok());
  const Parameters live = {{"run", "live"}, {"rank", "rank0"}};
  EXPECT_THAT(Ask("graph", live), AllOf(HasSubstr("Torch.add.0.forward"), Not(HasSubstr("Torch.div.0.forward"))));
  ASSERT_TRUE((*session)->Apply(agent.Call(0, "div", 2).Take()).ok());
  EXPECT_THAT(Ask("graph", live), HasSubstr("Torch.div.0.forward"));
}

TEST_F(WebServiceTest, AHistogramNeedsTheContentOfATensor) {
  EXPECT_THAT(Ask("histogram", Of({{"step", "0"}, {"tensor", "Torch.add.0.forward.output.0"}})),
              AllOf(HasSubstr("was not captured"), HasSubstr("\"status\":404")));
}

TEST_F(WebServiceTest, WhatIsWrongIsNamed) {
  for (const auto& [what, query, status, words] :
       {std::tuple<std::string, Parameters, int, std::string>{"overflow", {}, 400, "run is missing"},
        {"overflow", {{"run", "none"}}, 404, "none"},
        {"verdict", {}, 400, "run is missing"},
        {"run", {{"run", "none"}}, 404, "none"},
        {"divergence", {{"run", "job"}}, 400, "golden is missing"},
        {"heat_map", {{"run", "job"}, {"rank", "rank0"}}, 400, "tensors is missing"},
        {"heat_map", {{"run", "job"}, {"tensors", "*"}, {"rank", "3"}}, 400, "rank=3"},
        {"heat_map", Of({{"tensors", "*"}, {"columns", "x"}}), 400, "columns=x"},
        {"trend", {{"run", "job"}, {"tensor", "*"}, {"rank", "rank0"}, {"statistic", "mode"}}, 400, "statistic=mode"},
        {"graph", Of({{"step", "7"}}), 404, "there is no step 7 of this rank; there are 2, from 0 to 1"},
        {"graph", {{"run", "job"}, {"rank", "rank5"}}, 404, "no step of this rank"},
        {"graph", Of({{"open", "1.x"}}), 400, "open=x is no key of a module"},
        {"graph", Of({{"open", "123456789"}}), 400, "open=123456789"},
        {"graph", Of({{"show", "Torch.none"}}), 404, "no call \\\"Torch.none\\\""},
        {"graph", Of({{"side", "left"}}), 400, "side=left"},
        {"graph", Of({{"side", "golden"}}), 400, "needs the parameter golden"},
        {"graph", Of({{"golden", "none"}}), 404, "none"},
        {"graph", Of({{"wide", "-1"}}), 400, "wide=-1"},
        {"graph_search", Of({}), 400, "text is missing"},
        {"histogram", Of({{"tensor", "x"}}), 400, "step is missing"},
        {"record", Of({{"name", "x"}}), 400, "step is missing"},
        {"record", Of({{"name", "x"}, {"step", "7"}}), 404, "7"}}) {
    const std::string text = Ask(what, query);
    EXPECT_THAT(text, AllOf(StartsWith("{\"error\":\""), HasSubstr(words))) << what;
    EXPECT_THAT(text, HasSubstr("\"status\":" + std::to_string(status))) << what;
  }
}

TEST_F(WebServiceTest, TokensStandBeforeTheNumbersAndNotBeforeThePage) {
  std::ofstream(directory_ / "tokens") << "read dash 0123456789abcdef\nwrite train fedcba9876543210\n";
  auto tokens = Tokens::Load(directory_ / "tokens");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  Make(tokens->get());
  EXPECT_EQ(Get("/").status, 200);
  EXPECT_EQ(Get("/api/runs").status, 401);
  EXPECT_EQ(Get("/api/runs", {}, "0123456789abcdee").status, 401);
  EXPECT_EQ(Get("/api/runs", {}, "fedcba9876543210").status, 403);
  EXPECT_EQ(Get("/api/runs", {}, "0123456789abcdef").status, 200);
  EXPECT_EQ(metrics_.Value(Metric::kCallsDenied, {"unauthenticated"}), 2);
  EXPECT_EQ(metrics_.Value(Metric::kCallsDenied, {"permission_denied"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kWebRequests, {"runs", "refused"}), 3);
}

TEST_F(WebServiceTest, OnlySoManyAreWorkedOnAtOnceAndOneCallerDoesNotHaveThemAll) {
  std::vector<HttpResponse> waiting;
  for (int i = 0; i < WebService::kOfACaller; ++i) waiting.push_back(Get("/api/runs"));
  EXPECT_EQ(Get("/api/runs").status, 503) << "the same caller";
  peer_ = "10.0.0.2";
  for (int i = WebService::kOfACaller; i < WebService::kMaxQuestions; ++i) waiting.push_back(Get("/api/runs"));
  EXPECT_EQ(waiting.back().status, 200) << "another";
  EXPECT_EQ(metrics_.Value(Metric::kWebUnderWay), WebService::kMaxQuestions);
  peer_ = "10.0.0.3";
  EXPECT_EQ(Get("/api/runs").status, 503) << "all places are taken";
  EXPECT_EQ(Get("/").status, 200);
  waiting.pop_back();
  EXPECT_EQ(Get("/api/runs").status, 200);
  waiting.clear();
  EXPECT_EQ(metrics_.Value(Metric::kWebUnderWay), 0);
}

TEST_F(WebServiceTest, WorkEndsWithItsClientAndAfterItsTime) {
  FakeStream left;
  left.gone_ = true;
  Get("/api/heat_map", Of({{"tensors", "*"}})).stream(left);
  EXPECT_EQ(metrics_.Value(Metric::kWebRequests, {"heat_map", "cancelled"}), 1);

  class SlowStream : public FakeStream {
   public:
    explicit SlowStream(absl::Time* now) : now_(now) {}
    bool Write(std::string_view bytes) override {
      *now_ += WebService::kLongest;
      return FakeStream::Write(bytes);
    }
    absl::Time* const now_;
  } slow(&now_);
  HttpResponse response = Get("/api/heat_map", Of({{"tensors", "*"}}));
  response.stream(slow);
  EXPECT_THAT(slow.text_, AllOf(HasSubstr("took longer than 120 s"), HasSubstr("\"status\":504")));
  EXPECT_EQ(metrics_.Value(Metric::kWebRequests, {"heat_map", "error"}), 1);
}

}  // namespace
}  // namespace msprobe::server
