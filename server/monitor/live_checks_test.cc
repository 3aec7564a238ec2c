#include "server/monitor/live_checks.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

class LiveChecksTest : public testing::Test {
 protected:
  void SetUp() override { Open(); }
  void TearDown() override { Close(); }
  void Open() {
    StoreOptions options;
    options.directory = directory_ / "data";
    options.durability = v1::DURABILITY_OS;
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    jobs_ = std::make_unique<JobQueue>(store_.get(), &metrics_);
    ASSERT_TRUE(jobs_->Load().ok());
    monitors_ = std::make_unique<StepMonitors>(
        std::vector<StepMonitors::Make>{&MakeLiveChecks},
        MonitorParts{.store = store_.get(), .metrics = &metrics_, .watched = {}, .jobs = jobs_.get()});
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, monitors_.get(), SessionsOptions());
    ASSERT_TRUE(monitors_->Begin(sessions_.get()).ok());
    ASSERT_TRUE(sessions_->Recover().ok());
  }
  void Close() {
    sessions_.reset();
    monitors_->Stop();
    monitors_.reset();
    jobs_.reset();
    store_.reset();
  }
  static ScriptedAgent Checked(const std::string& name, const std::string& run, const std::string& config = "{}") {
    ScriptedAgent agent(name, run);
    agent.hello().mutable_settings()->set_task("check");
    agent.hello().mutable_settings()->set_config_json(config);
    return agent;
  }
  void Send(ScriptedAgent& agent) {
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    auto verdict = (*session)->Apply(agent.Take());
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    ASSERT_TRUE((*session)->AwaitDurable(absl::Seconds(30)).ok());
  }
  void SendPayload(ScriptedAgent& agent, const std::string& content) {
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    auto verdict = (*session)->AddPayload(ScriptedAgent::Chunk(ScriptedAgent::HashOf(content), 0, content, true));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
  }
  std::vector<v1::Job> JobsOf(const std::string& run) {
    v1::ListJobsRequest request;
    request.set_run(run);
    auto jobs = jobs_->List(request);
    return jobs.ok() ? std::vector<v1::Job>(jobs->jobs().begin(), jobs->jobs().end()) : std::vector<v1::Job>();
  }
  // The latest job of a run, once it has so many items and is in this state.
  std::optional<v1::Job> Await(const std::string& run, uint64_t items, v1::Job::State state = v1::Job::OPEN) {
    for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end; absl::SleepFor(kPoll)) {
      const std::vector<v1::Job> jobs = JobsOf(run);
      if (!jobs.empty() && jobs.back().items() == items && jobs.back().state() == state) return jobs.back();
    }
    return std::nullopt;
  }
  // Whether the age of the call that has waited longest becomes such.
  bool AwaitOldest(bool (*is_such)(double age)) {
    for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end; absl::SleepFor(kPoll)) {
      if (is_such(metrics_.Value(Metric::kCheckOldest, {"run"}))) return true;
    }
    return false;
  }
  // Long enough that what would be done is done: of what should not happen nothing tells.
  void LetLook() { absl::SleepFor(6 * LiveChecks::kPeriod); }
  // Leases all that waits and gives each this verdict, those whose name has `but` in it "fail". The names.
  std::vector<std::string> Finish(const std::string& verdict, const std::string& but = "\n") {
    v1::LeaseRequest request;
    request.set_worker("w");
    request.add_kinds("check");
    request.set_max_items(100);
    auto lease = jobs_->TakeLease(request, {}, [] { return false; });
    EXPECT_TRUE(lease.ok()) << lease.status();
    options_ = lease->options();
    v1::FinishRequest finish;
    finish.set_lease(lease->lease());
    finish.set_job(lease->job());
    std::vector<std::string> names;
    for (const auto& item : lease->items()) {
      names.push_back(item.name());
      if (!item.payload().empty()) reasons_.push_back(item.payload());
      auto& result = *finish.add_results();
      result.set_item(item.item());
      result.set_outcome(v1::OUTCOME_DONE);
      result.set_verdict(item.name().find(but) == std::string::npos ? verdict : "fail");
    }
    if (!names.empty()) {
      EXPECT_TRUE(jobs_->Finish(finish).ok());
    }
    return names;
  }

  bool Has(const std::string& content) {
    auto here = store_->payloads().Has(ScriptedAgent::HashOf(content));
    return here.ok() && *here;
  }
  bool AwaitGone(const std::string& content) {
    for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end; absl::SleepFor(kPoll)) {
      if (!Has(content)) return true;
    }
    return false;
  }
  // A call with an input of this content, which is here.
  void SendCall(ScriptedAgent& agent, uint32_t step, const std::string& name, const std::string& content) {
    agent.CallWithPayload(step, name, content);
    Send(agent);
    if (!Has(content)) SendPayload(agent, content);
  }

  static constexpr absl::Duration kPoll = absl::Milliseconds(10);
  ScratchDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<JobQueue> jobs_;
  std::unique_ptr<StepMonitors> monitors_;
  std::unique_ptr<Sessions> sessions_;
  std::string options_;               // of the last lease
  std::vector<std::string> reasons_;  // of items that are not checked
};

using Names = std::vector<std::string>;

TEST_F(LiveChecksTest, ACallIsAnItemAsSoonAsItsPayloadsAreHereAndTheStepIsUnderWay) {
  ScriptedAgent agent = Checked("a", "run", R"({"check": {"policy": "torch"}})");
  agent.Call(3, "add").CallWithPayload(3, "mul", "content");
  Send(agent);
  ASSERT_TRUE(Await("run", 1));
  LetLook();
  EXPECT_EQ(Finish("pass"), Names{"step3/rank0/Torch.add.0.forward"});
  EXPECT_NE(options_.find(R"("policy":"torch")"), std::string::npos) << options_;
  EXPECT_NE(options_.find(R"("golden":"cpu-fp64")"), std::string::npos) << options_;
  SendPayload(agent, "content");
  ASSERT_TRUE(Await("run", 2));
  EXPECT_EQ(Finish("fail"), Names{"step3/rank0/Torch.mul.0.forward"});
  agent.StepEnd(3).End();
  Send(agent);
  EXPECT_TRUE(Await("run", 2, v1::Job::FINISHED));
  LetLook();
  EXPECT_EQ(metrics_.Value(Metric::kCheckVerdicts, {"run", "pass"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kCheckVerdicts, {"run", "fail"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kCheckOldest, {"run"}), 0);
}

TEST_F(LiveChecksTest, OnlyTaskCheckIsChecked) {
  ScriptedAgent agent("a", "run");
  agent.Call(0, "add").StepEnd(0);
  Send(agent);
  LetLook();
  EXPECT_TRUE(JobsOf("run").empty());
}

TEST_F(LiveChecksTest, ALaterSessionOpensAnotherJob) {
  ScriptedAgent first = Checked("a", "run");
  first.Call(0, "add").StepEnd(0).End();
  Send(first);
  ASSERT_TRUE(Await("run", 1, v1::Job::SEALED));
  ScriptedAgent second = Checked("b", "run");
  second.Call(0, "add").StepEnd(0);
  Send(second);
  ASSERT_TRUE(Await("run", 1, v1::Job::OPEN));
  EXPECT_EQ(JobsOf("run").size(), 2u);
}

TEST_F(LiveChecksTest, AServerThatBeginsGoesOnWithoutDoublesOrHoles) {
  ScriptedAgent agent = Checked("a", "run");
  agent.Call(0, "add").Call(0, "mul");
  Send(agent);
  ASSERT_TRUE(Await("run", 2));
  monitors_->Stop();  // what comes now is stored and not looked at
  agent.Call(0, "sub").StepEnd(0);
  Send(agent);
  Close();
  Open();
  ASSERT_TRUE(Await("run", 3));
  LetLook();
  EXPECT_EQ(Finish("pass"), (Names{"step0/rank0/Torch.add.0.forward", "step0/rank0/Torch.mul.0.forward",
                                   "step0/rank0/Torch.sub.0.forward"}));
}

TEST_F(LiveChecksTest, ACancelledJobStaysCancelled) {
  ScriptedAgent agent = Checked("a", "run");
  agent.Call(0, "add");
  Send(agent);
  const auto job = Await("run", 1);
  ASSERT_TRUE(job);
  ASSERT_TRUE(jobs_->Cancel(job->job(), {.identity = "", .peer = "", .is_admin = true}).ok());
  agent.Call(1, "add").StepEnd(1);
  Send(agent);
  LetLook();
  ASSERT_EQ(JobsOf("run").size(), 1u);
  EXPECT_EQ(JobsOf("run").front().items(), 1u);
}

TEST_F(LiveChecksTest, ACancelledJobOfARunThatHasEndedKeepsNothingWaiting) {
  ScriptedAgent agent = Checked("a", "run");
  agent.Call(0, "add").StepEnd(0).End();
  Send(agent);
  const auto job = Await("run", 1, v1::Job::SEALED);
  ASSERT_TRUE(job);
  ASSERT_TRUE(AwaitOldest([](double age) { return age > 0; })) << "a call waits";
  ASSERT_TRUE(jobs_->Cancel(job->job(), {.identity = "", .peer = "", .is_admin = true}).ok());
  EXPECT_TRUE(AwaitOldest([](double age) { return age == 0; }));
}

TEST_F(LiveChecksTest, WhatSendersMakeUpStopsNoServer) {
  ScriptedAgent agent = Checked("a", "run", std::string(1 << 19, '['));  // nested deeper than any stack
  agent.Call(3, "add");
  Send(agent);
  const auto job = Await("run", 1);
  ASSERT_TRUE(job);
  v1::CreateJobRequest made_up;
  made_up.set_run("run");
  made_up.set_kind(LiveChecks::kTask);
  made_up.set_title(LiveChecks::kTitle);
  made_up.set_token(std::string(16, 't'));
  auto other = jobs_->Create(made_up, {.identity = "", .peer = "", .is_admin = true});
  ASSERT_TRUE(other.ok()) << other.status();
  v1::AddItemsRequest items;
  items.set_job(other->job());
  for (const char* name : {"//x", "/", "step4294967295/rank0/x", "step3/rank0/x"}) items.add_items()->set_name(name);
  ASSERT_TRUE(jobs_->AddItems(items, {.identity = "", .peer = "", .is_admin = true}).ok());
  Close();
  Open();
  LetLook();
  EXPECT_EQ(JobsOf("run").size(), 2u);
}

constexpr char kAgainstOther[] = R"({"check": {"golden": "other"}})";
constexpr char kReference[] = R"({"check": {"golden": "none"}})";

TEST_F(LiveChecksTest, WithARunAsGoldenValueACallWaitsForTheSameCallThere) {
  ScriptedAgent agent = Checked("a", "run", kAgainstOther);
  agent.Call(5, "add").Call(5, "mul").Call(5, "sub").StepEnd(5);
  Send(agent);
  LetLook();
  ASSERT_TRUE(Await("run", 0));
  ScriptedAgent golden("g", "other", 7);  // one process on both sides: its rank does not matter
  golden.CallWithPayload(5, "add", "slow");
  golden.Call(5, "mul");
  Send(golden);
  ASSERT_TRUE(Await("run", 1));  // while both go on
  EXPECT_EQ(Finish("pass"), Names{"step5/rank0/Torch.mul.0.forward"});
  SendPayload(golden, "slow");
  ASSERT_TRUE(Await("run", 2));
  EXPECT_EQ(Finish("pass"), Names{"step5/rank0/Torch.add.0.forward"});
  EXPECT_TRUE(reasons_.empty());
  golden.StepEnd(5);
  Send(golden);
  ASSERT_TRUE(Await("run", 3));
  EXPECT_EQ(Finish("skip"), Names{"step5/rank0/Torch.sub.0.forward"});
  EXPECT_EQ(reasons_, Names{R"({"skip":"run other has no Torch.sub.0.forward in step 5 of rank0"})"});
}

TEST_F(LiveChecksTest, ACallThatWaitsInVainSaysWhatItWaitedFor) {
  ScriptedAgent agent = Checked("a", "run", R"({"check": {"golden": "other", "golden_wait_s": 0.3}})");
  agent.Call(5, "add").StepEnd(5);
  Send(agent);
  ASSERT_TRUE(Await("run", 1));
  Finish("skip");
  EXPECT_EQ(reasons_, Names{R"({"skip":"run other gave no step 5 of rank0 within 300ms"})"});
}

TEST_F(LiveChecksTest, AReferenceThatHasEndedIsNotWaitedFor) {
  ScriptedAgent golden = Checked("g", "other", kReference);
  golden.Call(0, "add").StepEnd(0).End();
  Send(golden);
  ScriptedAgent agent = Checked("a", "run", kAgainstOther);
  agent.Call(5, "add").StepEnd(5);
  Send(agent);
  ASSERT_TRUE(Await("run", 1));
  Finish("skip");
  EXPECT_EQ(reasons_, Names{R"({"skip":"run other has ended without step 5 of rank0"})"});
  EXPECT_TRUE(JobsOf("other").empty()) << "a reference is not checked itself";
}

TEST_F(LiveChecksTest, TensorsOfPassedCallsGoAndThoseOfOthersStay) {
  ScriptedAgent agent = Checked("a", "run");
  SendCall(agent, 0, "add", "shared");
  SendCall(agent, 0, "mul", "only mul's");
  SendCall(agent, 1, "add", "shared");
  SendCall(agent, 1, "div", "only div's");
  agent.StepEnd(0);
  Send(agent);
  ASSERT_TRUE(Await("run", 4));
  Finish("pass", "div");
  EXPECT_TRUE(AwaitGone("only mul's"));
  EXPECT_TRUE(Has("shared")) << "step 1 is not through";
  agent.StepEnd(1);
  Send(agent);
  EXPECT_TRUE(AwaitGone("shared"));
  EXPECT_TRUE(Has("only div's"));
  SendCall(agent, 2, "add", "shared");  // it comes again
  EXPECT_TRUE(Has("shared"));
}

TEST_F(LiveChecksTest, WhatAnotherRunRefersToStays) {
  ScriptedAgent other("b", "statistics of another run");
  SendCall(other, 0, "add", "shared");
  ScriptedAgent agent = Checked("a", "run");
  SendCall(agent, 0, "add", "shared");
  SendCall(agent, 0, "mul", "own");
  agent.StepEnd(0);
  Send(agent);
  ASSERT_TRUE(Await("run", 2));
  Finish("pass");
  EXPECT_TRUE(AwaitGone("own"));
  EXPECT_TRUE(Has("shared"));
}

TEST_F(LiveChecksTest, KeepAllKeepsAll) {
  ScriptedAgent kept = Checked("a", "kept", R"({"check": {"keep": "all"}})");
  SendCall(kept, 0, "add", "kept");
  kept.StepEnd(0);
  Send(kept);
  ASSERT_TRUE(Await("kept", 1));
  Finish("pass");
  ScriptedAgent agent = Checked("b", "run");
  SendCall(agent, 0, "add", "not kept");
  agent.StepEnd(0);
  Send(agent);
  ASSERT_TRUE(Await("run", 1));
  Finish("pass");
  EXPECT_TRUE(AwaitGone("not kept"));
  EXPECT_TRUE(Has("kept"));
}

TEST_F(LiveChecksTest, AServerThatDiedBetweenVerdictAndRemovalRemovesWhenItBegins) {
  ScriptedAgent agent = Checked("a", "run");
  SendCall(agent, 0, "add", "passed");
  SendCall(agent, 0, "div", "failed");
  SendCall(agent, 0, "sub", "without a verdict");
  agent.StepEnd(0).End();
  Send(agent);
  ASSERT_TRUE(Await("run", 3, v1::Job::SEALED));
  monitors_->Stop();  // what comes now is stored and not looked at
  v1::LeaseRequest request;
  request.set_worker("w");
  request.add_kinds("check");
  request.set_max_items(2);
  auto lease = jobs_->TakeLease(request, {}, [] { return false; });
  ASSERT_TRUE(lease.ok());
  v1::FinishRequest finish;
  finish.set_lease(lease->lease());
  finish.set_job(lease->job());
  for (const auto& item : lease->items()) {
    auto& result = *finish.add_results();
    result.set_item(item.item());
    result.set_outcome(v1::OUTCOME_DONE);
    result.set_verdict(item.item() == 1 ? "fail" : "pass");
  }
  ASSERT_TRUE(jobs_->Finish(finish).ok());
  Close();
  Open();
  LetLook();
  EXPECT_TRUE(Has("passed")) << "the step is not judged";
  EXPECT_EQ(Finish("pass"), Names{"step0/rank0/Torch.sub.0.forward"});
  EXPECT_TRUE(AwaitGone("passed"));
  EXPECT_TRUE(AwaitGone("without a verdict"));
  EXPECT_TRUE(Has("failed"));
  Close();
  Open();  // nothing of it twice
  LetLook();
  EXPECT_TRUE(Has("failed"));
  EXPECT_EQ(JobsOf("run").size(), 1u);
}

TEST_F(LiveChecksTest, TensorsOfACancelledJobStay) {
  ScriptedAgent agent = Checked("a", "run");
  SendCall(agent, 0, "add", "content");
  const auto job = Await("run", 1);
  ASSERT_TRUE(job);
  ASSERT_TRUE(jobs_->Cancel(job->job(), {.identity = "", .peer = "", .is_admin = true}).ok());
  agent.StepEnd(0);
  Send(agent);
  LetLook();
  Close();
  Open();
  LetLook();
  EXPECT_TRUE(Has("content"));
}

TEST_F(LiveChecksTest, AReferencesTensorsGoWithTheVerdictsOfTheRunThatIsHeldAgainstIt) {
  ScriptedAgent golden = Checked("g", "other", kReference);
  for (const uint32_t step : {0, 1}) {
    SendCall(golden, step, "add", Cat("right ", step));
    SendCall(golden, step, "div", Cat("right div ", step));
    golden.StepEnd(step);
    Send(golden);
  }
  ScriptedAgent agent = Checked("a", "run", kAgainstOther);
  SendCall(agent, 0, "add", "input");
  SendCall(agent, 0, "div", "input of div");
  agent.StepEnd(0);
  Send(agent);
  ASSERT_TRUE(Await("run", 2));
  Finish("pass", "div");
  EXPECT_TRUE(AwaitGone("right 0"));
  EXPECT_TRUE(AwaitGone("input"));
  EXPECT_TRUE(Has("right div 0")) << "the call that fails is repeated with it";
  EXPECT_TRUE(Has("input of div"));
  EXPECT_TRUE(Has("right 1")) << "its step comes";
}

TEST_F(LiveChecksTest, AReferenceThatNobodyIsHeldAgainstKeepsNothingForEver) {
  ScriptedAgent golden = Checked("g", "other", R"({"check": {"golden": "none", "golden_wait_s": 0.3}})");
  SendCall(golden, 0, "add", "content");
  golden.StepEnd(0);
  Send(golden);
  EXPECT_TRUE(AwaitGone("content"));
}

}  // namespace
}  // namespace msprobe::server
