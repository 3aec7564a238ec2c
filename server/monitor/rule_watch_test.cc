#include "server/monitor/rule_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/analysis/table/dump_reader.h"
#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/monitor/rules/rule_kinds.h"
#include "server/monitor/run_rules.h"
#include "server/store/alarms.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RuleWatchTest : public testing::Test {
 protected:
  void SetUp() override { Start(); }
  void TearDown() override { Stop(); }

  void Start() {
    StoreOptions options;
    options.directory = directory_ / "data";
    options.durability = v1::DURABILITY_OS;
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    const std::vector<StepMonitors::Make> all = {MakeRuleWatch};
    monitors_ = std::make_unique<StepMonitors>(
        all, MonitorParts{.store = store_.get(), .metrics = &metrics_, .watched = {}, .rules = DefaultRules()});
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, monitors_.get(), SessionsOptions());
  }
  void Stop() {
    sessions_.reset();
    monitors_->Stop();
    monitors_.reset();
    store_.reset();
  }
  // Applies the agent's messages so far, and waits until the rules have seen them.
  void Send(ScriptedAgent& agent) {
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    auto verdict = (*session)->Apply(agent.Take());
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    ASSERT_TRUE((*session)->AwaitDurable(absl::Seconds(30)).ok());
    ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(30)));
  }
  void SetRules(const std::string& json) {
    auto rules = ParseRules(json);
    ASSERT_TRUE(rules.ok()) << rules.status();
    ASSERT_TRUE(Alarms(&store_->database()).SetRules(1, *rules).ok());
  }
  std::vector<v1::Alarm> All() {
    auto alarms = Alarms(&store_->database()).Of(1);
    EXPECT_TRUE(alarms.ok()) << alarms.status();
    return alarms.ok() ? *std::move(alarms) : std::vector<v1::Alarm>();
  }
  // "not-finite loss step 3 rank0 x1"
  std::vector<std::string> Shown() {
    std::vector<std::string> shown;
    for (const v1::Alarm& alarm : All()) {
      shown.push_back(Cat(alarm.rule(), " ", alarm.series(), " step ", alarm.step(), " ", RankName(alarm.rank()), " x",
                          alarm.offences()));
    }
    return shown;
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<StepMonitors> monitors_;
  std::unique_ptr<Sessions> sessions_;
};

TEST_F(RuleWatchTest, AnAlarmHasItsEvidence) {
  ScriptedAgent agent("a", "job");
  for (uint32_t step = 0; step < 30; ++step) agent.Log(step, {{"loss", step < 25 ? 1.0 / (step + 1) : std::nan("")}});
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("not-finite loss step 25 rank0 x5"));
  const v1::Alarm alarm = All()[0];
  EXPECT_EQ(alarm.number(), 1U);
  EXPECT_EQ(alarm.kind(), "not_finite");
  EXPECT_EQ(alarm.last_step(), 29U);
  EXPECT_EQ(alarm.why(), "it is nan");
  ASSERT_EQ(alarm.recent_step_size(), RunRules::kRecent);
  EXPECT_EQ(alarm.recent_step(14), 24U);
  EXPECT_EQ(alarm.recent_value(14), 1.0 / 25);
  EXPECT_EQ(metrics_.Value(Metric::kAlarms, {"job", "not-finite"}), 1);
}

TEST_F(RuleWatchTest, WhatOverflowPassesOverIsNoOffence) {
  const float infinity = std::numeric_limits<float>::infinity();
  ScriptedAgent agent("a", "job");
  for (uint32_t step = 0; step < 4; ++step) {
    // Memory that nothing was written to, and what comes of it.
    agent.Enter(step, "empty").Exit(step, "empty", infinity).Call(step, "add", infinity);
    agent.Enter(step, "linear").Exit(step, "linear", step < 3 ? 1 : kNan).StepEnd(step);
  }
  Send(agent);
  ASSERT_EQ(All().size(), 1U);
  EXPECT_EQ(All()[0].step(), 3U);
  EXPECT_THAT(All()[0].series(), testing::StartsWith("Torch.linear."));
}

// What not_finite takes offence at in steps 0, 1, ... of one rank, each the entries of a dump.
std::vector<std::string> NotFinite(const std::vector<std::vector<std::pair<std::string, std::string>>>& steps) {
  auto set = ParseRules(R"({"rules": [{"name": "not-finite", "not_finite": {}}]})");
  EXPECT_TRUE(set.ok()) << set.status();
  RunRules rules(*set, {});
  for (uint32_t step = 0; step < steps.size(); ++step) {
    StepTable table;
    DumpReader reader(&table);
    for (const auto& [name, json] : steps[step]) EXPECT_TRUE(reader.AddEntry(name, json, 0).ok());
    rules.LookAtTensors("session", 0, step, table, absl::UnixEpoch());
  }
  std::vector<std::string> shown;
  for (const RunRules::Changed& changed : rules.TakeChanged()) {
    shown.push_back(Cat(changed.alarm->series(), " step ", changed.alarm->step(), " x", changed.alarm->offences()));
  }
  return shown;
}

std::string Leaf(const std::string& value) {
  const std::string norm = value == "-Infinity" ? "Infinity" : value;
  return Cat(R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":)", value,
             R"(,"Mean":0.0,"Norm":)", norm, R"(,"requires_grad":false})");
}

std::string CallOf(const std::string& inputs, const std::string& output) {
  return Cat(R"({"input_args":[)", inputs, R"(],"output":[)", output, "]}");
}

TEST(NotFiniteTest, WhatHasNoOriginInItsStepIsAnOffenceUnlessTheProgramAccountsForIt) {
  const auto receives = [](const std::string& value) {
    return std::vector<std::pair<std::string, std::string>>{
        {"Tensor.masked_fill.0.forward",
         CallOf(Leaf("1.0") + R"(,{"type":"float","value":-Infinity})", Leaf("-Infinity"))},
        {"Functional.softmax.0.forward", CallOf(Leaf("-Infinity"), Leaf("1.0"))},
        {"Distributed.recv.0.forward", CallOf("", Leaf(value))},
        {"Torch.mul.0.forward", CallOf(Leaf(value), Leaf(value))}};
  };
  EXPECT_THAT(NotFinite({receives("1.0"), receives("1.0")}), IsEmpty()) << "a mask does no harm";
  EXPECT_THAT(NotFinite({receives("1.0"), receives("NaN")}),
              ElementsAre("Distributed.recv.0.forward.output.0:norm step 1 x3"));
  EXPECT_THAT(NotFinite({{{"Distributed.all_reduce.0.forward", CallOf(Leaf("NaN"), Leaf("NaN"))}}}),
              ElementsAre("Distributed.all_reduce.0.forward.output.0:norm step 0 x1"));
}

// The stream of a program, which keeps what it is told of alarms.
class Listener final : public SessionListener {
 public:
  void OnDurable(uint64_t) override {}
  void OnSyncFailed(const absl::Status&) override {}
  void OnStored(const std::vector<std::string>&) override {}
  void OnStepExported(const v1::StepExported&) override {}
  void OnReplaced(const absl::Status&) override {}
  void OnAlarm(const v1::AlarmRaised& alarm) override {
    absl::MutexLock lock(&mu_);
    told_.push_back(
        Cat(alarm.number(), " ", alarm.rule(), " step ", alarm.step(), " ", alarm.series(), ": ", alarm.why()));
  }
  std::vector<std::string> told() const {
    absl::MutexLock lock(&mu_);
    return told_;
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mu_);
};

TEST_F(RuleWatchTest, TheProgramWhoseOffenceItIsHearsOfAnAlarmOnce) {
  ASSERT_TRUE(monitors_->Begin(sessions_.get()).ok());
  const auto ill = std::make_shared<Listener>();
  const auto well = std::make_shared<Listener>();
  std::vector<std::shared_ptr<Session>> streams;
  for (uint32_t rank : {0u, 1u}) {
    ScriptedAgent agent(Cat("rank", rank), "job", rank);
    auto stream = sessions_->OpenStream(agent.hello(), rank == 0 ? ill : well, Caller());
    ASSERT_TRUE(stream.ok()) << stream.status();
    streams.push_back(*stream);
    for (uint32_t step = 0; step < 10; ++step) agent.Log(step, {{"loss", rank == 0 && step > 4 ? std::nan("") : 1.0}});
    ASSERT_TRUE(streams.back()->Apply(agent.Take()).ok());
    ASSERT_TRUE(streams.back()->AwaitDurable(absl::Seconds(30)).ok());
    ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(30)));
  }
  EXPECT_THAT(ill->told(), ElementsAre("1 not-finite step 5 loss: it is nan"));
  EXPECT_THAT(well->told(), IsEmpty());
}

TEST_F(RuleWatchTest, OfASilentRuleTheProgramHearsNothing) {
  ASSERT_TRUE(monitors_->Begin(sessions_.get()).ok());
  ScriptedAgent agent("a", "job");
  const auto listener = std::make_shared<Listener>();
  auto stream = sessions_->OpenStream(agent.hello(), listener, Caller());
  ASSERT_TRUE(stream.ok()) << stream.status();
  SetRules(R"({"rules": [{"name": "quiet", "not_finite": {}, "silent": true}]})");
  agent.Log(0, {{"loss", std::nan("")}});
  ASSERT_TRUE((*stream)->Apply(agent.Take()).ok());
  ASSERT_TRUE((*stream)->AwaitDurable(absl::Seconds(30)).ok());
  ASSERT_TRUE(monitors_->AwaitDone(absl::Seconds(30)));
  EXPECT_THAT(Shown(), ElementsAre("quiet loss step 0 rank0 x1"));
  EXPECT_THAT(listener->told(), IsEmpty());
}

// A rank of two, each of which has half of a weight.
ScriptedAgent Half(uint32_t rank) { return ScriptedAgent(Cat("half ", rank), "job", rank); }
constexpr char kHalf[] = "w.parameters_grad.reduced.shard(4/8@0-1):norm";

TEST_F(RuleWatchTest, AShardedTensorIsWatchedAsAWhole) {
  SetRules(R"({"rules": [{"name": "explodes", "exploding": {"limit": 4.5}}]})");
  ScriptedAgent first = Half(0), second = Half(1);
  for (uint32_t step = 0; step < 4; ++step) first.Log(step, {{kHalf, 3}});
  Send(first);
  EXPECT_THAT(Shown(), IsEmpty()) << "the other rank's shards have not come";
  for (uint32_t step = 0; step < 4; ++step) second.Log(step, {{kHalf, step < 2 ? 1 : 4}});
  Send(second);
  EXPECT_THAT(Shown(), ElementsAre("explodes w.parameters_grad.reduced:norm step 2 rank0 x2"));
  EXPECT_EQ(All()[0].value(), 5);
  EXPECT_EQ(All()[0].ranks_size(), 1);
  EXPECT_THAT(All()[0].recent_value(),
              ElementsAre(testing::DoubleEq(std::sqrt(10)), testing::DoubleEq(std::sqrt(10)), 5));
}

TEST_F(RuleWatchTest, WholesOfARestartedJobAreWatchedAnew) {
  SetRules(R"({"rules": [{"name": "stands-still", "series": "w.*", "unchanged": {"patience": 2}}]})");
  ScriptedAgent first = Half(0), second = Half(1);
  Send(first.Log(8, {{kHalf, 3}}).Log(9, {{kHalf, 3}}));
  Send(second.Log(8, {{kHalf, 4}}).Log(9, {{kHalf, 4}}));
  ScriptedAgent first_again("again 0", "job", 0), second_again("again 1", "job", 1);
  Send(first_again.Log(5, {{kHalf, 3}}));
  Send(second_again.Log(5, {{kHalf, 4}}));
  EXPECT_THAT(Shown(), IsEmpty());
}

// Sessions are seen closed before their last points come, and a rank may come when another has gone.
TEST_F(RuleWatchTest, TheEndOfAlarmsForgetsNoShards) {
  SetRules(R"({"rules": [{"name": "explodes", "exploding": {"limit": 4.5}}]})");
  ScriptedAgent first = Half(0), second = Half(1);
  Send(first.Log(2, {{kHalf, 3}, {"v.parameters_grad.reduced:norm", 9}}).End());
  ASSERT_THAT(Shown(), ElementsAre("explodes v.parameters_grad.reduced:norm step 2 rank0 x1"));
  EXPECT_NE(All()[0].ended_unix_us(), 0);
  Send(second.Log(2, {{kHalf, 4}}));
  EXPECT_THAT(Shown(), ElementsAre("explodes v.parameters_grad.reduced:norm step 2 rank0 x2"));
  EXPECT_THAT(All()[0].others(), ElementsAre("w.parameters_grad.reduced:norm"));
  EXPECT_EQ(All()[0].ended_unix_us(), 0) << "it goes on with the other rank";
  Send(second.End());
  EXPECT_NE(All()[0].ended_unix_us(), 0);
}

TEST_F(RuleWatchTest, AStepThatARankLacksIsGivenUpWhenALaterOneIsWhole) {
  SetRules(R"({"rules": [{"name": "explodes", "exploding": {"limit": 4.5}}]})");
  ScriptedAgent first = Half(0), second = Half(1);
  for (uint32_t step = 0; step < 4; ++step) first.Log(step, {{kHalf, 3}});
  second.Log(3, {{kHalf, 4}});
  Send(second);
  Send(first);
  EXPECT_THAT(Shown(), ElementsAre("explodes w.parameters_grad.reduced:norm step 3 rank0 x1"));
  EXPECT_EQ(metrics_.Value(Metric::kRulesSkipped, {"shards"}), 3);
}

core::SampledToken OfLoop(uint32_t i) {
  return {.id = i % 8, .has_logprobs = true, .top1 = i % 8 == 0 ? -0.15 : -0.01, .mass = 1};
}
core::SampledToken OfText(uint32_t i) {
  return {.id = i * i % 997, .has_logprobs = true, .top1 = i % 5 == 0 ? -2 : -0.1, .mass = 1};
}

TEST_F(RuleWatchTest, ALoopIsToldWhileTheReplyIsWritten) {
  ScriptedAgent agent("a", "job");
  for (uint32_t step = 0; step < 255; ++step) {
    agent.Reply(10 + step, "loop-1", OfLoop(step)).Reply(10 + step, "text-2", OfText(step));
  }
  Send(agent);
  EXPECT_THAT(Shown(), IsEmpty());
  Send(agent.Reply(265, "loop-1", OfLoop(255)).Reply(265, "text-2", OfText(255)));
  EXPECT_THAT(Shown(), ElementsAre("ill-response response/loop-1 step 265 rank0 x1"));
  const v1::Alarm alarm = All()[0];
  EXPECT_EQ(alarm.kind(), "ill_response");
  EXPECT_THAT(alarm.why(), HasSubstr("it repeats itself: of the 3-grams of tokens 128 to 255"));
  EXPECT_EQ(alarm.recent_value(alarm.recent_value_size() - 1), 255 % 8);
  EXPECT_EQ(metrics_.Value(Metric::kIllResponses, {"job", "repeat"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kResponseTokens, {"job", "judged"}), 512);
}

TEST_F(RuleWatchTest, AReplyThatEndsIsForgotten) {
  ScriptedAgent agent("a", "job");
  for (uint32_t i = 0; i < 200; ++i) agent.Reply(i, "one", OfLoop(i));
  Send(agent.Reply(200, "one", std::nullopt));
  EXPECT_THAT(Shown(), ElementsAre("ill-response response/one step 200 rank0 x1"));
  // The name comes again: its tokens count from 0.
  for (uint32_t i = 0; i < 190; ++i) agent.Reply(300 + i, "one", OfLoop(i));
  Send(agent.Reply(500, "one", std::nullopt).Reply(501, "never seen", std::nullopt));
  EXPECT_EQ(All().size(), 1u);
}

TEST_F(RuleWatchTest, TokensWithoutLogProbabilitiesAreJudgedByRepetitionAlone) {
  ScriptedAgent agent("a", "job");
  SetRules(R"({"rules": [{"name": "loop", "illResponse": {"window": 16, "stride": 8, "repeatGram": 2,
               "repeatDistinct": 0.3, "repeatSingleWindows": 1}}]})");
  for (uint32_t i = 0; i < 24; ++i) agent.Reply(i, "bare", core::SampledToken{.id = i % 2});
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("loop response/bare step 23 rank0 x1"));
  EXPECT_THAT(All()[0].why(), HasSubstr("it has no log-probabilities, so the rest is not judged"));
  EXPECT_EQ(metrics_.Value(Metric::kResponseTokens, {"job", "tokens_alone"}), 24);
}

TEST_F(RuleWatchTest, WrongParametersOfIllResponseAreNamed) {
  const auto rules = ParseRules(R"({"rules": [{"name": "loop", "illResponse": {"stride": 200}}]})");
  EXPECT_EQ(rules.status().message(), "rule \"loop\": ill_response.stride is 200; it should be from 1 to window, 128");
}

TEST_F(RuleWatchTest, OffencesFarApartAreTwoAlarms) {
  ScriptedAgent agent("a", "job");
  for (uint32_t step : {5u, 6u, 90u, 300u}) agent.Log(step, {{"loss", std::nan("")}});
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("not-finite loss step 5 rank0 x3", "not-finite loss step 300 rank0 x1"));
}

TEST_F(RuleWatchTest, AnAlarmEndsWithItsEpisodeAndWithItsRun) {
  ScriptedAgent agent("a", "job");
  const auto ended = [this] {
    std::vector<bool> ended;
    for (const v1::Alarm& alarm : All()) ended.push_back(alarm.ended_unix_us() != 0);
    return ended;
  };
  Send(agent.Log(5, {{"loss", std::nan("")}}).Log(105, {{"loss", 1}}));
  EXPECT_THAT(ended(), ElementsAre(false));
  Send(agent.Log(106, {{"loss", 1}}));
  EXPECT_THAT(ended(), ElementsAre(true));
  Send(agent.Log(107, {{"loss", std::nan("")}}));
  EXPECT_THAT(ended(), ElementsAre(true, false));
  Send(agent.End());
  EXPECT_THAT(ended(), ElementsAre(true, true));
}

TEST_F(RuleWatchTest, AnAlarmOfARunThatEndedWhileNobodyWatchedEndsAtTheStart) {
  ScriptedAgent agent("a", "job");
  Send(agent.Log(5, {{"loss", std::nan("")}}).End());
  std::vector<v1::Alarm> alarms = All();
  ASSERT_EQ(alarms.size(), 1u);
  alarms[0].clear_ended_unix_us();
  ChangeSet changes;
  Alarms::Put(1, alarms[0], changes);
  ASSERT_TRUE(store_->database().Write(changes).ok());
  Stop();
  Start();
  ASSERT_TRUE(monitors_->Begin(sessions_.get()).ok());
  EXPECT_NE(All()[0].ended_unix_us(), 0);
}

TEST_F(RuleWatchTest, ARankThatReportsLateMayHaveBeenFirst) {
  ScriptedAgent late("a", "job", 0), early("b", "job", 1);
  early.Log(7, {{"loss", std::nan("")}});
  Send(early);
  EXPECT_THAT(Shown(), ElementsAre("not-finite loss step 7 rank1 x1"));
  late.Log(6, {{"grad", std::nan("")}}).Log(7, {{"loss", std::nan("")}});
  Send(late);
  EXPECT_THAT(Shown(), ElementsAre("not-finite grad step 6 rank0 x3"));
  EXPECT_THAT(All()[0].others(), ElementsAre("loss"));
  EXPECT_EQ(All()[0].ranks_size(), 2);
}

TEST_F(RuleWatchTest, RanksAtStepsOfTheirOwnAreOneAlarm) {
  ScriptedAgent ahead("a", "job", 0), behind("b", "job", 1);
  for (uint32_t i = 0; i < 5; ++i) {
    ahead.Log(5000 + i, {{"loss", std::nan("")}});
    Send(ahead);
    behind.Log(500 + i, {{"loss", std::nan("")}});
    Send(behind);
  }
  EXPECT_THAT(Shown(), ElementsAre("not-finite loss step 500 rank1 x10"));
}

TEST_F(RuleWatchTest, WithRulesOfAnUnknownKindTheServersOwnWatch) {
  ScriptedAgent agent("a", "job");
  agent.Log(0, {{"loss", 1}});
  Send(agent);
  v1::RuleSet of_a_later_version;
  of_a_later_version.add_rules()->set_name("new");
  ASSERT_TRUE(Alarms(&store_->database()).SetRules(1, of_a_later_version).ok());
  agent.Log(1, {{"loss", std::nan("")}});
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("not-finite loss step 1 rank0 x1"));
}

TEST_F(RuleWatchTest, AScalersSkippedStepsRaiseNoAlarm) {
  ScriptedAgent agent("a", "job");
  for (uint32_t step = 0; step < 40; ++step) {
    agent.Log(step, {{"loss", 1}, {"grad_norm", step < 4 || step == 20 ? INFINITY : 1}});
  }
  Send(agent);
  EXPECT_THAT(Shown(), IsEmpty());
}

TEST_F(RuleWatchTest, AGradientThatPoisonsIsTheFirstOffender) {
  ScriptedAgent agent("a", "job");
  for (uint32_t step = 0; step < 10; ++step) {
    agent.Log(step, {{"grad_norm", step == 2 || step >= 6 ? std::nan("") : 1}, {"loss", step > 6 ? std::nan("") : 1}});
  }
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("not-finite grad_norm step 6 rank0 x6"));
  EXPECT_EQ(All()[0].recent_step(6), 6U);
}

TEST_F(RuleWatchTest, ARankThatDiffersIsNamedWhoeverReportsLast) {
  std::vector<ScriptedAgent> agents;
  for (uint32_t rank = 0; rank < 3; ++rank) agents.emplace_back(Cat("agent", rank), "job", rank);
  for (uint32_t step = 0; step < 8; ++step) {
    for (uint32_t rank : {1u, 2u, 0u}) {
      Send(agents[rank].Log(step, {{"fc.weight.parameter:norm", 3 + 0.1 * step + (rank == 1 && step >= 5 ? 1 : 0)}}));
    }
  }
  EXPECT_THAT(Shown(), ElementsAre("rank-differs fc.weight.parameter:norm step 5 rank1 x3"));
  EXPECT_EQ(All()[0].why(), "rank1 has 4.5, 2 ranks have 3.5");
}

TEST_F(RuleWatchTest, KindsOfWholeTensorsTakeTheirNames) {
  ScriptedAgent agent("a", "job");
  Send(agent.Log(0, {{"loss", 1}}));
  SetRules(R"({"rules": [{"name": "stale", "series": "Torch.add.*.input.*", "stale": {"patience": 2}},
                         {"name": "scalars", "series": "*:norm", "scalars_only": true, "threshold": {"above": 0}}]})");
  for (uint32_t step = 1; step < 5; ++step) {
    agent.Call(step, "add", 3).Call(step, "mul", static_cast<float>(step)).StepEnd(step);
  }
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("stale Torch.add.0.forward.input.0 step 3 rank0 x2"));
}

TEST_F(RuleWatchTest, APatternWithoutAStatisticTakesNoTensor) {
  ScriptedAgent agent("a", "job");
  agent.Log(0, {{"loss", 1}});
  Send(agent);
  SetRules(
      R"({"rules": [{"name": "nan", "not_finite": {}}, {"name": "low", "series": "*", "threshold": {"above": 0.5}}]})");
  agent.Enter(1, "div", 1).Exit(1, "div", kNan).Enter(1, "mul", 3).Exit(1, "mul", 3).StepEnd(1);
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("nan Torch.div.0.forward.output.0:norm step 1 rank0 x1"));
}

TEST_F(RuleWatchTest, TheFirstTensorOfAStepGoesBeforeItsScalars) {
  ScriptedAgent agent("a", "job");
  agent.Log(0, {{"loss", 1}}).Call(0, "add").StepEnd(0);
  agent.Log(1, {{"loss", std::nan("")}});
  agent.Call(1, "add").Enter(1, "div", 1).Exit(1, "div", kNan).Enter(1, "mul", kNan).Exit(1, "mul", kNan).StepEnd(1);
  Send(agent);
  ASSERT_EQ(All().size(), 1U);
  EXPECT_EQ(All()[0].series(), "Torch.div.0.forward.output.0:norm");
  EXPECT_THAT(All()[0].others(), testing::Contains("loss"));
}

TEST_F(RuleWatchTest, RulesOfARunWatchFromTheNextPointsOn) {
  ScriptedAgent agent("a", "job");
  agent.Log(0, {{"lr", 5}});
  Send(agent);
  EXPECT_THAT(Shown(), IsEmpty());
  SetRules(R"({"rules": [{"name": "lr", "series": "lr", "threshold": {"above": 1}},
                         {"name": "norms", "series": "Torch.add.*:max", "threshold": {"above": 100}}]})");
  agent.Log(1, {{"lr", 5}, {"loss", std::nan("")}}).Call(1, "add", 1).StepEnd(1).Call(2, "add", 101).StepEnd(2);
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("lr lr step 1 rank0 x1", "norms Torch.add.0.forward.input.0:max step 2 rank0 x2"));
}

TEST_F(RuleWatchTest, AlarmsOutliveTheServerAndGoOn) {
  ScriptedAgent agent("a", "job");
  agent.Log(3, {{"loss", std::nan("")}});
  Send(agent);
  Stop();
  Start();
  agent.Log(4, {{"loss", std::nan("")}}).Log(200, {{"loss", std::nan("")}});
  Send(agent);
  EXPECT_THAT(Shown(), ElementsAre("not-finite loss step 3 rank0 x2", "not-finite loss step 200 rank0 x1"));
}

TEST_F(RuleWatchTest, ARestartedJobIsWatchedAnew) {
  SetRules(R"({"rules": [{"name": "z", "z_score": {"warm_up": 4, "window": 8}}]})");
  ScriptedAgent first("a", "job"), second("b", "job");
  for (uint32_t step = 0; step < 10; ++step) first.Log(step, {{"loss", 1 + 0.1 * (step % 3)}});
  Send(first);
  // Another level is no offence of a session that begins with it.
  for (uint32_t step = 5; step < 15; ++step) second.Log(step, {{"loss", 9 + 0.1 * (step % 3)}});
  Send(second);
  EXPECT_THAT(Shown(), IsEmpty());
}

// --- the catalogue: runs as they are, and what each illness must be called
// ---------------------------------------------

using Curve = std::function<double(int step, double noise)>;

class Catalogue : public RuleWatchTest {
 protected:
  // Logs `steps` points of each curve; noise is normal, the same for the same seed.
  void Run(const std::map<std::string, Curve>& curves, int steps, uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, 1);
    ScriptedAgent agent("a", "job");
    for (int step = 0; step < steps; ++step) {
      std::vector<std::pair<std::string, double>> scalars;
      for (const auto& [name, curve] : curves) scalars.emplace_back(name, curve(step, normal(random)));
      agent.Log(static_cast<uint32_t>(step), scalars);
    }
    Send(agent);
  }
};

double Falling(int step, double noise) { return 2 + 8 * std::exp(-0.02 * step) + 0.05 * noise; }

struct Healthy {
  const char* name;
  std::map<std::string, Curve> curves;
};

TEST_F(Catalogue, HealthyRunsRaiseNoAlarm) {
  const auto gradients = [](int, double noise) { return 0.5 * std::exp(0.4 * noise); };
  const std::vector<Healthy> healthy = {
      {"falls", {{"loss", Falling}, {"grad_norm", gradients}}},
      {"warm-up",
       {{"loss", [](int step,
                    double noise) { return step < 40 ? 10 - 0.02 * step + 0.05 * noise : Falling(step - 40, noise); }},
        {"lr", [](int step, double) { return 1e-3 * std::min(1.0, step / 40.0); }}}},
      {"spikes that heal",
       {{"loss", [](int step, double noise) { return Falling(step, noise) * (step % 97 < 2 && step > 50 ? 3 : 1); }}}},
      {"schedule", {{"loss", [](int step, double noise) { return (step < 150 ? 2 : 1.4) + 0.05 * noise; }}}},
      {"clipping",
       {{"grad_norm", [](int step, double noise) { return std::min(1.0, 0.5 * std::exp(0.6 * noise)) + 0 * step; }},
        {"loss", Falling}}},
      {"noisy", {{"loss", [](int, double noise) { return 1 + 0.4 * noise; }}}},
      {"constant", {{"loss", [](int, double) { return 0.6931; }}}},
      {"near zero", {{"loss", [](int step, double noise) { return std::exp(-0.05 * step) * (1 + 0.2 * noise); }}}},
      {"validated",
       {{"train/loss", Falling}, {"val/loss", [](int step, double noise) { return 0.1 + Falling(step, noise); }}}},
      {"negative reward loss", {{"loss", [](int step, double noise) { return -0.01 * step + 0.3 * noise; }}}},
  };
  for (const Healthy& run : healthy) {
    for (uint64_t seed : {1, 2}) {
      Run(run.curves, 400, seed);
      EXPECT_THAT(Shown(), IsEmpty()) << run.name;
      Stop();
      std::filesystem::remove_all(directory_ / "data");
      Start();
    }
  }
}

struct Ill {
  const char* name;
  const char* rules;  // empty: the built-in ones
  std::map<std::string, Curve> curves;
  const char* rule;  // that must raise the first alarm
  const char* series;
  uint32_t from, to;  // its step
};

TEST_F(Catalogue, EachIllnessIsNamedByItsRuleAtItsStep) {
  const auto until = [](int step, const Curve& before, const Curve& after) -> Curve {
    return [=](int at, double noise) { return at < step ? before(at, noise) : after(at, noise); };
  };
  const auto value = [](double constant) -> Curve { return [=](int, double) { return constant; }; };
  const auto norm = [](int, double noise) { return std::exp(0.2 * noise); };
  const std::vector<Ill> ills = {
      {"nan", "", {{"loss", until(200, Falling, value(std::nan("")))}}, "not-finite", "loss", 200, 200},
      {"infinity", "", {{"grad_norm", until(120, norm, value(INFINITY))}}, "not-finite", "grad_norm", 120, 120},
      {"loss jumps",
       "",
       {{"loss", until(200, Falling, [](int, double noise) { return 6 + 0.1 * noise; })}},
       "loss-jumps",
       "loss",
       200,
       203},
      {"gradient explodes",
       "",
       {{"grad_norm", until(150, norm, value(900))}},
       "gradient-explodes",
       "grad_norm",
       150,
       150},
      {"overfits",
       "",
       {{"train/loss", Falling},
        {"val/loss", [](int step, double noise) { return Falling(step, noise) + std::max(0, step - 100) * 0.02; }}},
       "overfit",
       "val/loss",
       104,  // where it is least
       155},
      {"learns nothing",
       R"({"rules": [{"name": "stuck", "not_decreasing": {"patience": 100, "margin": 0.01}}]})",
       {{"loss", until(100, Falling, [](int, double noise) { return 4 + 0.05 * noise; })}},
       "stuck",
       "loss",
       190,
       203},
      {"drifts",
       R"({"rules": [{"name": "drift", "series": "act", "change_point": {}}]})",
       {{"act", [](int step, double noise) { return 1 + 0.02 * noise + (step > 200 ? 0.06 : 0); }}},
       "drift",
       "act",
       200,
       210},
      {"vanishes",
       R"({"rules": [{"name": "gone", "series": "g", "vanishing": {}}]})",
       {{"g", until(80, norm, value(1e-12))}},
       "gone",
       "g",
       82,
       82},
      {"is zero",
       R"({"rules": [{"name": "zero", "series": "g", "all_zero": {}}]})",
       {{"g", until(80, norm, value(0))}},
       "zero",
       "g",
       82,
       82},
      {"stale",
       R"({"rules": [{"name": "stale", "series": "p", "unchanged": {}}]})",
       {{"p", until(80, norm, value(1.5))}},
       "stale",
       "p",
       83,
       83},
      {"updates too large",
       R"({"rules": [{"name": "update", "update_ratio": {}}]})",
       {{"update_ratio/w", until(80, value(1e-3), value(0.4))}},
       "update",
       "update_ratio/w",
       82,
       82},
      {"dead",
       R"({"rules": [{"name": "dead", "series": "share", "dead_units": {}}]})",
       {{"share", until(80, value(0.5), value(0.995))}},
       "dead",
       "share",
       82,
       82},
      {"lr off",
       R"({"rules": [{"name": "lr", "series": "lr", "threshold": {"above": 0.01}}]})",
       {{"lr", until(80, value(1e-3), value(0.1))}},
       "lr",
       "lr",
       80,
       80},
  };
  for (const Ill& ill : ills) {
    if (*ill.rules != '\0') {
      // A run of number 1 is made by its first session.
      ScriptedAgent first("z", "job");
      Send(first.Log(0, {{"unwatched", 1}}));
      SetRules(ill.rules);
    }
    Run(ill.curves, 400);
    const std::vector<v1::Alarm> alarms = All();
    ASSERT_FALSE(alarms.empty()) << ill.name;
    EXPECT_EQ(alarms[0].rule(), ill.rule) << ill.name;
    EXPECT_EQ(alarms[0].series(), ill.series) << ill.name;
    EXPECT_GE(alarms[0].step(), ill.from) << ill.name;
    EXPECT_LE(alarms[0].step(), ill.to) << ill.name;
    Stop();
    std::filesystem::remove_all(directory_ / "data");
    Start();
  }
}

}  // namespace
}  // namespace msprobe::server
