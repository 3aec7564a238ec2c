#include "server/control/agent_queues.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/disk/scratch_directory.h"
#include "server/store/store.h"

namespace msprobe::server {
namespace {

// A process's stream that keeps the commands it gets.
class FakeStream : public SessionListener {
 public:
  void OnDurable(uint64_t) override {}
  void OnSyncFailed(const absl::Status&) override {}
  void OnStored(const std::vector<std::string>&) override {}
  void OnStepExported(const v1::StepExported&) override {}
  void OnReplaced(const absl::Status&) override {}
  void OnControl(const v1::ControlCommand& command) override { asked.push_back(command); }

  std::vector<v1::ControlCommand> asked;
};

class AgentQueuesTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    queues_ = std::make_unique<AgentQueues>(sessions_.get(), &metrics_);
  }

  // The process is connected until the returned session is destroyed.
  std::shared_ptr<Session> Connect(const v1::Hello& hello, const std::shared_ptr<FakeStream>& stream) {
    auto session = sessions_->OpenStream(hello, stream, Caller());
    EXPECT_TRUE(session.ok()) << session.status();
    return *session;
  }
  void Look(absl::Duration later) {
    now_ += later;
    queues_->Tick(now_);
  }
  void Say(const ScriptedAgent& agent, uint64_t bytes) {
    v1::ControlReport report;
    report.set_queue_bytes(bytes);
    queues_->Report(agent.session(), report);
  }
  double Shown(const std::string& rank) const { return metrics_.Value(Metric::kAgentQueueBytes, {"job", rank}); }

  ScratchDirectory directory_;
  Metrics metrics_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<AgentQueues> queues_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
};

TEST_F(AgentQueuesTest, AsksWhoIsConnectedAndShowsWhatTheySay) {
  ScriptedAgent agent("a", "job", 3), old("b", "job", 4);
  agent.hello().add_capabilities("control");
  auto stream = std::make_shared<FakeStream>(), deaf = std::make_shared<FakeStream>();
  auto session = Connect(agent.hello(), stream), other = Connect(old.hello(), deaf);
  Look(absl::ZeroDuration());
  ASSERT_EQ(stream->asked.size(), 1u) << "as soon as it is there";
  EXPECT_EQ(stream->asked[0].action(), v1::ControlCommand::STATUS);
  EXPECT_TRUE(deaf->asked.empty()) << "an agent that does not know the question";
  Say(agent, 5000);
  EXPECT_EQ(Shown("rank3"), 5000);
  Look(absl::Seconds(2));
  EXPECT_EQ(stream->asked.size(), 1u);
  Look(AgentQueues::kPeriod);
  ASSERT_EQ(stream->asked.size(), 2u);
  EXPECT_GT(stream->asked[1].id(), stream->asked[0].id());
  Say(agent, 70);
  EXPECT_EQ(Shown("rank3"), 70);
}

TEST_F(AgentQueuesTest, ForgetsWhoIsGone) {
  ScriptedAgent agent("a", "job", 3);
  agent.hello().add_capabilities("control");
  auto stream = std::make_shared<FakeStream>();
  auto session = Connect(agent.hello(), stream);
  Look(absl::ZeroDuration());
  Say(agent, 5000);
  session.reset();
  Look(absl::Seconds(2));
  EXPECT_EQ(Shown("rank3"), 0);
  Say(agent, 6000);
  EXPECT_EQ(Shown("rank3"), 0) << "a report that was under way";
}

TEST_F(AgentQueuesTest, FollowsARankThatBecomesKnown) {
  ScriptedAgent agent("a", "job", 3);
  agent.hello().add_capabilities("control");
  auto stream = std::make_shared<FakeStream>();
  auto session = Connect(agent.hello(), stream);
  Look(absl::ZeroDuration());
  Say(agent, 5000);
  agent.Call(0, "op").RankKnown(9);
  ASSERT_TRUE(session->Apply(agent.Take()).ok());
  Look(absl::Seconds(2));
  Say(agent, 800);
  EXPECT_EQ(Shown("rank3"), 0);
  EXPECT_EQ(Shown("rank9"), 800);
}

}  // namespace
}  // namespace msprobe::server
