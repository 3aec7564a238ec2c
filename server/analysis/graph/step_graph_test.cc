#include "server/analysis/graph/step_graph.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/analysis/graph/graph_match.h"
#include "server/analysis/table/dump_reader.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;  // of calls, and their parents

// A step that has these calls and, besides, entries of these names.
StepTable Step(const Names& calls, const std::vector<std::string>& entries = {}, const std::string& stacks = "") {
  StepTable table;
  DumpReader reader(&table);
  for (const std::string& name : entries) EXPECT_TRUE(reader.AddEntry(name, "{}", 0).ok());
  if (!stacks.empty()) {
    EXPECT_TRUE(reader.AddStacks(stacks).ok());
  }
  std::string construct = "{";
  for (const auto& [name, parent] : calls) {
    construct +=
        Cat(construct.size() > 1 ? ", \"" : "\"", name, "\": ", parent.empty() ? "null" : Cat("\"", parent, "\""));
  }
  EXPECT_TRUE(reader.AddCalls(construct + "}").ok()) << construct;
  return table;
}

StepGraph GraphOf(const StepTable& table) {
  auto graph = StepGraph::Make(table);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

std::string ParentOf(const StepGraph& graph, std::string_view name) {
  const int32_t node = graph.Find(name);
  if (node < 0) return "no such node";
  const int32_t parent = graph.node(node).parent;
  return parent < 0 ? "" : std::string(graph.node(parent).name);
}

TEST(StepGraphTest, NeedsCalls) { EXPECT_TRUE(absl::IsInvalidArgument(StepGraph::Make(StepTable()).status())); }

TEST(StepGraphTest, EndsWithTheRoot) {
  const StepTable table = Step({{"Torch.add.0.forward", "Module.a.A.forward.0"}, {"Module.a.A.forward.0", ""}});
  const StepGraph graph = GraphOf(table);
  std::vector<std::string> names;
  for (const int32_t node : graph.order()) names.emplace_back(graph.node(node).name);
  EXPECT_EQ(names, (std::vector<std::string>{"Torch.add.0.forward", "Module.a.A.forward.0", "DefaultModel"}));
}

TEST(StepGraphTest, FindsTheParentOfABackwardCallByItsForwardCall) {
  const StepTable table = Step({{"Module.a.A.forward.0", ""},
                                {"Module.a.b.B.forward.0", "Module.a.A.forward.0"},
                                {"Torch.add.0.forward", "Module.a.b.B.forward.0"},
                                {"Module.a.A.backward.0", ""},
                                {"Module.a.b.B.backward.0", ""},
                                {"Torch.add.0.backward", ""},
                                // an activation that works in place has taken in its neighbour
                                {"Module.a.relu.ReLU.forward.0", "Module.a.A.forward.0"},
                                {"Module.a.relu.ReLU.backward.0", "Module.a.A.backward.0"},
                                {"Module.a.c.C.forward.0", "Module.a.A.forward.0"},
                                {"Module.a.c.C.backward.0", "Module.a.relu.ReLU.backward.0"}});
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(ParentOf(graph, "Module.a.b.B.backward.0"), "Module.a.A.backward.0");
  EXPECT_EQ(ParentOf(graph, "Torch.add.0.backward"), "Module.a.b.B.backward.0");
  EXPECT_EQ(ParentOf(graph, "Module.a.c.C.backward.0"), "Module.a.A.backward.0");
}

TEST(StepGraphTest, CollectsOperationsBetweenModules) {
  const StepTable table = Step({{"Torch.a.0.forward", ""},
                                {"Module.a.A.forward.0", ""},
                                {"Torch.b.0.forward", ""},
                                {"Torch.c.0.forward", ""},
                                {"Module.b.B.forward.0", ""},
                                {"Torch.d.0.forward", ""},
                                {"Torch.e.0.forward", ""}});
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(ParentOf(graph, "Torch.a.0.forward"), "DefaultModel");
  EXPECT_EQ(ParentOf(graph, "Torch.c.0.forward"), "Apis_Between_Modules.0");
  EXPECT_EQ(ParentOf(graph, "Torch.e.0.forward"), "Apis_Between_Modules.1");
}

TEST(StepGraphTest, HangsGradientsBelowTheLastBackwardCall) {
  Names calls = {{"Module.a.A.forward.0", ""}};
  for (int i = 0; i < 11; ++i) calls.emplace_back(Cat("Module.a.A.backward.", i), "");
  const StepTable table = Step(calls, {"Module.a.A.parameters_grad.0", "Module.b.B.parameters_grad"});
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(ParentOf(graph, "Module.a.A.parameters_grad.0"), "Module.a.A.backward.10");
  EXPECT_EQ(ParentOf(graph, "Module.b.B.parameters_grad"), "no such node");
}

TEST(StepGraphTest, ShowsWhatHangsNowhereBelowTheRoot) {
  StepTable table = Step({{"Torch.a.0.forward", "Module.gone.G.forward.0"},
                          {"Module.a.A.forward.0", ""},
                          {"Module.b.B.forward.0", "Module.a.A.forward.0"}});
  table.calls[1].parent = "Module.b.B.forward.0";  // which no file may say
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(ParentOf(graph, "Torch.a.0.forward"), "Module.gone.G.forward.0");
  EXPECT_EQ(ParentOf(graph, "Module.gone.G.forward.0"), "DefaultModel");
  EXPECT_EQ(graph.order().size(), graph.nodes().size());
}

TEST(StepGraphTest, CountsMicroStepsByTheModelsCalls) {
  const StepTable table = Step({{"Module.a.A.forward.0", ""},
                                {"Module.head.H.forward.0", ""},
                                {"Module.head.H.backward.0", ""},
                                {"Module.a.A.backward.0", ""},
                                {"Module.ema.E.forward.0", ""},  // after backward, but no new round
                                {"Module.a.A.forward.1", ""},
                                {"Torch.x.0.forward", "Module.a.A.forward.1"},
                                {"Module.a.A.backward.1", ""},
                                {"optimizer", ""}});
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(graph.micro_steps(), 2u);
  EXPECT_EQ(graph.node(graph.Find("Module.ema.E.forward.0")).micro_step, 0u);
  EXPECT_EQ(graph.node(graph.Find("Torch.x.0.forward")).micro_step, 1u);
  EXPECT_EQ(graph.node(graph.Find("optimizer")).micro_step, 1u);
}

TEST(StepGraphTest, OneMicroStepHasWhatCheckpointingComputesAgain) {
  const StepTable table = Step({{"Module.block.B.forward.0", ""},
                                {"Module.head.H.forward.0", ""},
                                {"Module.head.H.backward.0", ""},
                                {"Module.block.B.forward.1", ""},
                                {"Module.block.B.backward.0", ""}},
                               {},
                               R"({"0": [["Module.block.B.forward.1"], ["File /torch/utils/checkpoint.py, line 1, )"
                               R"(in recompute_fn, \n f"]]})");
  EXPECT_EQ(GraphOf(table).micro_steps(), 1u);
}

TEST(StepGraphTest, OneMicroStepIsInferenceAndSeveralForwardPassesBeforeABackwardOne) {
  const StepTable inference = Step({{"Module.a.A.forward.0", ""}, {"Module.a.A.forward.1", ""}});
  EXPECT_EQ(GraphOf(inference).micro_steps(), 1u);
  const StepTable table = Step({{"Module.a.A.forward.0", ""},
                                {"Module.a.A.forward.1", ""},
                                {"Module.a.A.backward.1", ""},
                                {"Module.a.A.backward.0", ""}});
  EXPECT_EQ(GraphOf(table).micro_steps(), 1u);
}

TEST(StepGraphTest, TakesMegatronsCountOfMicroSteps) {
  StepTable table;
  DumpReader reader(&table);
  ASSERT_TRUE(reader
                  .AddCalls(R"({"megatron_micro_step_number": 1, "Module.a.A.forward.0": [null, 0],
                                "Module.a.A.forward.1": [null, 1]})")
                  .ok());
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(graph.micro_steps(), 2u);
  EXPECT_EQ(graph.node(graph.Find("Module.a.A.forward.1")).micro_step, 1u);
}

TEST(StepGraphTest, PutsRecomputedModulesBelowTheBackwardCallThatNeededThem) {
  const StepTable table = Step({{"Module.a.A.forward.0", ""},
                                {"Module.a.b.c.B.forward.0", "Module.a.A.forward.0"},
                                {"Module.a.A.backward.0", ""},
                                {"Module.a.b.c.B.forward.1", ""},
                                {"Module.a.b.c.B.backward.1", ""}},
                               {},
                               R"({"0": [["Module.a.b.c.B.forward.1"], ["File /torch/utils/checkpoint.py, line 1, )"
                               R"(in recompute_fn, \n f"]]})");
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(ParentOf(graph, "Module.a.b.c.B.forward.1"), "Module.a.A.backward.0");
  EXPECT_EQ(ParentOf(graph, "Module.a.b.c.B.backward.1"), "Module.a.A.backward.0");
}

TEST(StepGraphTest, GivesBackwardCallsTheStackOfTheirForwardCalls) {
  const StepTable table =
      Step({{"Module.a.A.forward.0", ""}, {"Module.a.A.backward.0", ""}, {"Module.b.B.backward.0", ""}}, {},
           R"({"0": [["Module.a.A.forward.0"], ["File a"]]})");
  const StepGraph graph = GraphOf(table);
  EXPECT_EQ(graph.node(graph.Find("Module.a.A.backward.0")).stack, 0);
  EXPECT_EQ(graph.node(graph.Find("Module.b.B.backward.0")).stack, -1);
}

TEST(GraphMatchTest, NeedsTheSameModulesAround) {
  const StepTable target = Step({{"Module.a.A.forward.0", ""},
                                 {"Torch.x.0.forward", "Module.a.A.forward.0"},
                                 {"Module.b.B.forward.0", ""},
                                 {"Torch.y.0.forward", "Module.b.B.forward.0"}});
  const StepTable golden = Step({{"Module.a.A.forward.0", ""},
                                 {"Torch.x.0.forward", "Module.a.A.forward.0"},
                                 {"Torch.y.0.forward", "Module.a.A.forward.0"}});
  const StepGraph ours = GraphOf(target);
  const StepGraph theirs = GraphOf(golden);
  const GraphMatch match = MatchNodes(ours, theirs);
  EXPECT_EQ(match.golden_of[static_cast<size_t>(ours.Find("Torch.x.0.forward"))], theirs.Find("Torch.x.0.forward"));
  EXPECT_EQ(match.golden_of[static_cast<size_t>(ours.Find("Torch.y.0.forward"))], -1);
  EXPECT_EQ(match.target_of[0], 0);
}

TEST(GraphMatchTest, FuzzilyCountsOperationsAnewInEachModule) {
  const StepTable target = Step({{"Module.a.A.forward.0", ""},
                                 {"Torch.x.7.forward", "Module.a.A.forward.0"},
                                 {"Torch.x.8.forward", "Module.a.A.forward.0"}});
  const StepTable golden = Step({{"Module.a.A.forward.0", ""},
                                 {"Torch.x.0.forward", "Module.a.A.forward.0"},
                                 {"Torch.z.0.forward", "Module.a.A.forward.0"},
                                 {"Torch.x.1.forward", "Module.a.A.forward.0"}});
  const StepGraph ours = GraphOf(target);
  const StepGraph theirs = GraphOf(golden);
  const GraphMatch match = MatchNodesFuzzily(ours, theirs);
  EXPECT_EQ(match.golden_of[static_cast<size_t>(ours.Find("Torch.x.8.forward"))], theirs.Find("Torch.x.1.forward"));
  EXPECT_EQ(match.target_of[static_cast<size_t>(theirs.Find("Torch.z.0.forward"))], -1);
}

}  // namespace
}  // namespace msprobe::server
