#include "server/web/model_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/ingest/session/sessions.h"
#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

class ModelGraphsTest : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.directory = directory_ / "data";
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    sessions_ = std::make_unique<Sessions>(store_.get(), &metrics_, nullptr, SessionsOptions());
    for (const char* run : {"a", "b"}) {
      ScriptedAgent agent(run, run);
      agent.Call(0, "add", 2).Call(0, "div", 1).StepEnd(0).Call(1, "add", 2).Call(1, "div", *run).StepEnd(1).End();
      ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
    }
    context_.store = store_.get();
    context_.metrics = &metrics_;
    context_.layouts = &layouts_;
  }
  static ModelGraphs::Question Of(const std::string& run, const std::string& golden = "") {
    return {run, golden, {v1::Rank::RANK, 0}, 1};
  }
  std::shared_ptr<const StepGraphs> Find(ModelGraphs& graphs, const ModelGraphs::Question& question) {
    auto found = graphs.Find(context_, question, [] { return false; });
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->graphs : nullptr;
  }

  ScratchDirectory directory_;
  Metrics metrics_;
  TableLayouts layouts_;
  AnalysisContext context_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Sessions> sessions_;
};

TEST_F(ModelGraphsTest, AGraphIsMadeOnceUnderWhateverStepItIsAskedFor) {
  ModelGraphs graphs;
  ModelGraphs::Question question = Of("a");
  question.step = std::nullopt;
  const auto first = Find(graphs, question);
  EXPECT_EQ(first->step, 0) << "the first, as none has NaN";
  question.step = 0;
  EXPECT_EQ(Find(graphs, question), first);
  EXPECT_NE(Find(graphs, Of("a")), first);
  EXPECT_EQ(graphs.nodes(), 8) << "of each step two calls, their collection, and the root";
}

TEST_F(ModelGraphsTest, ThoseAskedForLastStayWithinTheBound) {
  ModelGraphs graphs(/*max_nodes=*/8);
  const auto first = Find(graphs, Of("a"));
  Find(graphs, Of("b"));
  EXPECT_EQ(Find(graphs, Of("a")), first);
  EXPECT_EQ(Find(graphs, Of("a", "b"))->nodes(), 8);
  EXPECT_EQ(graphs.nodes(), 8);
  EXPECT_NE(Find(graphs, Of("a")), first);

  ModelGraphs none(/*max_nodes=*/0);
  Find(none, Of("a"));
  EXPECT_EQ(none.nodes(), 4) << "the one used last stays in any case";
}

TEST_F(ModelGraphsTest, TwoSidesAreCompared) {
  ModelGraphs graphs;
  const auto answer = graphs.Find(context_, Of("a", "b"), [] { return false; });
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto found = answer->graphs;
  EXPECT_EQ(found->blame, "input") << "the scripted input is the output, too";
  EXPECT_EQ(found->target.graph().node(found->target.first()).name, "Torch.div.0.forward");
  EXPECT_EQ(answer->around.steps, 2);
  EXPECT_EQ(answer->around.before, 0);
  EXPECT_EQ(answer->around.after, std::nullopt);
}

TEST_F(ModelGraphsTest, ARunThatGoesOnKeepsItsGraphAndHasNewSteps) {
  ModelGraphs graphs;
  const auto asked = [&](bool anew) {
    return *graphs.Find(
        context_, Of("a"), [] { return false; }, anew);
  };
  const auto before = asked(false);
  EXPECT_EQ(before.around.after, std::nullopt);
  ScriptedAgent agent("c", "a");
  agent.Call(2, "add", 2).StepEnd(2).End();
  ASSERT_TRUE((*sessions_->OpenSession(agent.hello()))->Apply(agent.Take()).ok());
  EXPECT_EQ(asked(false).around.last, 1) << "the store was asked a moment ago";
  const auto after = asked(true);
  EXPECT_EQ(after.graphs, before.graphs);
  EXPECT_EQ(after.around.after, 2);
  EXPECT_EQ(asked(false).around.last, 2);
}

TEST_F(ModelGraphsTest, ManyThatAskAtOnceGetTheSameGraphAndOneThatLeavesHoldsNobodyUp) {
  ModelGraphs graphs;
  EXPECT_FALSE(graphs.Find(context_, Of("a"), [] { return true; }).ok());
  EXPECT_EQ(graphs.nodes(), 0);
  std::vector<std::shared_ptr<const StepGraphs>> found(8);
  std::vector<std::thread> threads;
  for (auto& each : found) threads.emplace_back([&] { each = Find(graphs, Of("a")); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : found) EXPECT_EQ(each, found[0]);
}

}  // namespace
}  // namespace msprobe::server
