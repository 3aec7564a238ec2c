#include "server/monitor/step_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "server/format/cat.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A monitor that a stranger could add: it only hears of steps.
class EndedSteps : public StepMonitor {
 public:
  explicit EndedSteps(std::vector<uint32_t>* steps) : steps_(steps) {}
  void OnStepFinished(const std::string&, uint32_t step, v1::StepSummary::State) override { steps_->push_back(step); }

 private:
  std::vector<uint32_t>* const steps_;
};

class StepWatchTest : public testing::Test {
 protected:
  void Start(const std::string& watched = "") {
    StoreOptions options;
    options.directory = directory_ / "data";
    options.durability = v1::DURABILITY_OS;
    options.on_run_deleted = [this](const std::string& run) {
      metrics_.ForgetRun(run);
      monitors_->Forget(run);
    };
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    const std::vector<StepMonitors::Make> all = {
        [this](const MonitorParts& parts) {
          auto watch = std::make_unique<StepWatch>(parts.store, parts.metrics, parts.watched);
          watch_ = watch.get();
          return watch;
        },
        [this](const MonitorParts&) { return std::make_unique<EndedSteps>(&ended_); },
        [](const MonitorParts&) { return nullptr; }};
    monitors_ = std::make_unique<StepMonitors>(
        all,
        MonitorParts{.store = store_.get(), .metrics = &metrics_, .scraped = true, .watched = *ParseWatched(watched)});
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, monitors_.get(), SessionsOptions());
  }
  void TearDown() override {
    sessions_.reset();
    if (monitors_ != nullptr) monitors_->Stop();
  }
  // Applies the agent's messages so far, and waits until the monitor has looked at the steps that they end.
  void Send(ScriptedAgent& agent) {
    auto session = sessions_->OpenSession(agent.hello());
    ASSERT_TRUE(session.ok()) << session.status();
    auto verdict = (*session)->Apply(agent.Take());
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    ASSERT_TRUE((*session)->AwaitDurable(absl::Seconds(30)).ok());
    ASSERT_TRUE(watch_->AwaitIdle(absl::Seconds(30)));
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Store> store_;
  std::vector<uint32_t> ended_;
  StepWatch* watch_ = nullptr;  // one of monitors_
  std::unique_ptr<StepMonitors> monitors_;
  std::unique_ptr<Sessions> sessions_;
};

TEST_F(StepWatchTest, EveryMonitorThatIsRegisteredHearsOfEachStep) {
  Start();
  ScriptedAgent agent("a", "job", 3);
  agent.Call(0, "add").StepEnd(0).Call(1, "add").StepEnd(1);
  Send(agent);
  EXPECT_EQ(ended_, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(metrics_.Value(Metric::kWatchedSteps, {"unread"}), 2);
}

TEST_F(StepWatchTest, CountsWhereNanBeginsAndNotWhatPassesItOn) {
  Start();
  ScriptedAgent agent("a", "job", 3);
  agent.Call(0, "add").StepEnd(0);
  agent.Call(1, "add").Enter(1, "div", 1).Exit(1, "div", kNan).Enter(1, "mul", kNan).Exit(1, "mul", kNan).StepEnd(1);
  Send(agent);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowProducers, {"job", "rank3", "none", "nan"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowProducers, {"job", "rank3", "none", "inf"}), 0);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowFirstStep, {"job", "rank3", "none", "nan", "computation"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kWatchedSteps, {"unread"}), 1) << "step 0 has nothing to look at";
  EXPECT_EQ(metrics_.Value(Metric::kWatchedSteps, {"read"}), 1);
}

TEST_F(StepWatchTest, TheFirstStepOfARankStaysTheFirst) {
  Start();
  ScriptedAgent agent("a", "job");
  for (uint32_t step : {4u, 5u}) {
    agent.Enter(step, "exp", 1).Exit(step, "exp", step == 4 ? kInfinity : kNan).StepEnd(step);
  }
  Send(agent);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowProducers, {"job", "rank0", "none", "inf"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowProducers, {"job", "rank0", "none", "nan"}), 1);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowFirstStep, {"job", "rank0", "none", "inf", "computation"}), 4);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowFirstStep, {"job", "rank0", "none", "nan", "computation"}), 0);
}

TEST_F(StepWatchTest, AWritersThousandRunsDoNotKeepALaterJobFromBeingShown) {
  Start();
  const auto overflow = [this](const std::string& run) {
    ScriptedAgent agent(run, run);
    agent.Enter(4, "div", 1).Exit(4, "div", kNan).StepEnd(4).End();
    Send(agent);
  };
  for (int i = 0; i < 1001; ++i) overflow(Cat("writer", i));
  overflow("job");
  EXPECT_EQ(metrics_.Value(Metric::kOverflowFirstStep, {"job", "rank0", "none", "nan", "computation"}), 4);
  EXPECT_EQ(metrics_.Value(Metric::kNanTensors, {"job", "rank0"}), 1);
}

TEST_F(StepWatchTest, ADeletedRunLeavesTheMetricsAndItsSuccessorBeginsAnew) {
  Start();
  for (const uint32_t step : {4u, 7u}) {
    ScriptedAgent agent(Cat("session", step), "job");
    agent.Enter(step, "div", 1).Exit(step, "div", kNan).StepEnd(step).End();
    Send(agent);
    EXPECT_EQ(metrics_.Value(Metric::kOverflowFirstStep, {"job", "rank0", "none", "nan", "computation"}), step);
    ASSERT_TRUE(store_->maintenance().DeleteRun("job").ok());
    EXPECT_EQ(metrics_.Text().find("run=\"job\""), std::string::npos);
  }
}

TEST_F(StepWatchTest, ShowsWhatIsWatched) {
  Start("loss=Torch.loss.*.output*:max,scale=Torch.none.*:norm");
  ScriptedAgent agent("a", "job");
  agent.Call(0, "loss", 2.5).StepEnd(0);
  Send(agent);
  EXPECT_EQ(metrics_.Value(Metric::kWatched, {"job", "rank0", "loss"}), 2.5);
  agent.Call(1, "loss", 1.5).StepEnd(1);
  Send(agent);
  EXPECT_EQ(metrics_.Value(Metric::kWatched, {"job", "rank0", "loss"}), 1.5);
  EXPECT_EQ(metrics_.Value(Metric::kWatched, {"job", "rank0", "scale"}), 0);
}

TEST_F(StepWatchTest, NobodyIsWokenForAnImport) {
  Start();
  ScriptedAgent agent("a", "job");
  agent.hello().set_process_id(0);
  agent.Enter(0, "div", 1).Exit(0, "div", kNan).StepEnd(0);
  Send(agent);
  EXPECT_EQ(metrics_.Value(Metric::kOverflowProducers, {"job", "rank0", "none", "nan"}), 0);
  EXPECT_EQ(metrics_.Value(Metric::kWatchedSteps, {"unread"}), 1);
}

TEST_F(StepWatchTest, TheLastStepOfARankIsShownWhileItsSessionIsOpen) {
  Start();
  ScriptedAgent agent("a", "job", 1);
  agent.Call(6, "add").StepEnd(6).Call(7, "add").StepEnd(7);
  Send(agent);
  EXPECT_EQ(metrics_.Value(Metric::kLastStep, {"job", "rank1"}), 7);
  EXPECT_NEAR(metrics_.Value(Metric::kLastStepTime, {"job", "rank1"}),
              absl::ToDoubleSeconds(store_->Now() - absl::UnixEpoch()), 60);
  agent.End();
  Send(agent);
  EXPECT_EQ(metrics_.Value(Metric::kLastStep, {"job", "rank1"}), 0);
  EXPECT_EQ(metrics_.Value(Metric::kLastStepTime, {"job", "rank1"}), 0);
}

}  // namespace
}  // namespace msprobe::server
