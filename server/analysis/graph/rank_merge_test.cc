#include "server/analysis/graph/rank_merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/analysis/compat/mindstudio_cells.h"
#include "server/analysis/table/dump_reader.h"
#include "server/analysis/table/memory_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Entries = std::vector<std::pair<std::string, std::string>>;

std::string Real(double value) {
  std::string text;
  AppendReal(value, text);
  return text;
}

std::string Tensor(double max, double min, double mean, double norm) {
  return Cat(R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": )", Real(max), R"(, "Min": )",
             Real(min), R"(, "Mean": )", Real(mean), R"(, "Norm": )", Real(norm), R"(, "requires_grad": false})");
}

std::string Call(const std::string& input, const std::string& output) {
  return Cat(R"({"input_args": [)", input, R"(], "output": [)", output, "]}");
}

// Ranks, as long as they are merged.
class Ranks {
 public:
  void Add(const Entries& entries, std::string_view construct) {
    auto table = std::make_unique<MemoryTable>(entries);
    DumpReader reader(&table->mutable_table());
    EXPECT_TRUE(reader.AddCalls(construct).ok());
    auto graph = StepGraph::Make(table->table());
    EXPECT_TRUE(graph.ok()) << graph.status();
    graphs_.push_back(std::make_unique<StepGraph>(*std::move(graph)));
    tables_.push_back(std::move(table));
  }
  absl::StatusOr<std::vector<std::unique_ptr<MergedStep>>> Merge(const ParallelLayout& layout) const {
    std::vector<RankGraph> ranks;
    for (size_t i = 0; i < tables_.size(); ++i) {
      ranks.push_back({static_cast<uint32_t>(i), &tables_[i]->table(), graphs_[i].get()});
    }
    return MergeRanks(ranks, layout);
  }

 private:
  std::vector<std::unique_ptr<MemoryTable>> tables_;
  std::vector<std::unique_ptr<StepGraph>> graphs_;
};

std::vector<std::string> Names(MergedStep& step) {
  std::vector<std::string> names;
  for (const int32_t node : step.graph().order()) names.emplace_back(step.graph().node(node).name);
  return names;
}

const Row& RowOf(const MergedStep& step, std::string_view name) {
  for (const Row& row : step.table().rows) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << "no row " << name;
  return step.table().rows.front();
}

constexpr std::string_view kConstruct = R"({"Module.fc.Linear.forward.0": null})";

TEST(RankMergeTest, ValuesOfSharedTensorsAreThoseOfTheWhole) {
  Ranks ranks;
  ranks.Add({{"Module.fc.Linear.forward.0", Call(Tensor(1, 0, 0.5, 2), Tensor(3, -4, 1, 3))}}, kConstruct);
  ranks.Add({{"Module.fc.Linear.forward.0", Call(Tensor(1, 0, 0.5, 2), Tensor(5, -1, 2, 4))}}, kConstruct);
  auto merged = ranks.Merge({2, 2, 1});
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->size(), 1u);
  MergedStep& step = *merged->front();
  const Row& output = RowOf(step, "Module.fc.Linear.forward.0.output.0");
  EXPECT_EQ(output.statistics[0].number(), 5);
  EXPECT_EQ(output.statistics[1].number(), -4);
  EXPECT_EQ(output.statistics[2].number(), 1.5);
  EXPECT_EQ(output.statistics[3].number(), 5);
  EXPECT_THAT(step.notes()[static_cast<size_t>(step.graph().Find("Module.fc.Linear.forward.0"))],
              ElementsAre("This data is the merged data after tensor parallelism(TP), and the data is merged from rank "
                          "[0, 1].",
                          "The Max value merging method for output.0 is: max(3.0, 5.0) = 5.0",
                          "The Min value merging method for output.0 is: min(-4.0, -1.0) = -4.0",
                          "The Mean value merging method for output.0 is: (1.0 + 2.0) / 2 = 1.5",
                          "The Norm value merging method for output.0 is: (3.0 ** 2 + 4.0 ** 2) ** 0.5 = 5.0"));
  EXPECT_EQ(RowOf(step, "Module.fc.Linear.forward.0.input.0").statistics[3].number(), 2) << "the same on both";
}

TEST(RankMergeTest, EveryRankOfDataParallelismIsAGraph) {
  Ranks ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.Add({{"Module.fc.Linear.forward.0", Call(Tensor(rank, 0, 0, 1), Tensor(rank, 0, 0, 1))}}, kConstruct);
  }
  auto merged = ranks.Merge({4, 2, 1});
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->size(), 2u);
  EXPECT_EQ((*merged)[1]->rank(), 2u);
  EXPECT_EQ(RowOf(*(*merged)[1], "Module.fc.Linear.forward.0.output.0").statistics[0].number(), 3);
}

TEST(RankMergeTest, LayersOfAPipelineAreNumberedThrough) {
  constexpr std::string_view construct =
      R"({"Module.m.Model.forward.0": null, "Module.m.layers.0.Block.forward.0": "Module.m.Model.forward.0",
          "Functional.linear.0.forward": "Module.m.layers.0.Block.forward.0",
          "Module.m.layers.1.Block.forward.0": "Module.m.Model.forward.0"})";
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const double at = 10.0 * rank;
    ranks.Add({{"Module.m.Model.forward.0", Call(Tensor(1, 0, 0, 1), Tensor(at + 1, 0, 0, 1))},
               {"Module.m.layers.0.Block.forward.0", Call(Tensor(at + 2, 0, 0, 1), Tensor(at + 3, 0, 0, 1))},
               {"Functional.linear.0.forward", Call(Tensor(at + 4, 0, 0, 1), Tensor(at + 5, 0, 0, 1))},
               {"Module.m.layers.1.Block.forward.0", Call(Tensor(at + 6, 0, 0, 1), Tensor(at + 7, 0, 0, 1))}},
              construct);
  }
  auto merged = ranks.Merge({2, 1, 2});
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->size(), 1u);
  MergedStep& step = *merged->front();
  EXPECT_THAT(Names(step), ElementsAre("Functional.linear.0.forward", "Module.m.layers.0.Block.forward.0",
                                       "Module.m.layers.1.Block.forward.0", "Functional.linear_rank1.0.forward",
                                       "Module.m.layers.2.Block.forward.0", "Module.m.layers.3.Block.forward.0",
                                       "Module.m.Model.forward.0", "DefaultModel"));
  EXPECT_EQ(RowOf(step, "Module.m.Model.forward.0.output.0").statistics[0].number(), 11) << "the last rank's";
  EXPECT_EQ(RowOf(step, "Functional.linear_rank1.0.forward.input.0").statistics[0].number(), 14);
  EXPECT_EQ(RowOf(step, "Module.m.layers.3.Block.forward.0.output.0").statistics[0].number(), 17);
}

TEST(RankMergeTest, ChunksOfAVirtualPipelineAreOneModel) {
  constexpr std::string_view construct =
      R"({"Module.0.Model.forward.0": null, "Module.0.layers.0.Block.forward.0": "Module.0.Model.forward.0",
          "Module.0.rope.Rope.forward.0": "Module.0.Model.forward.0",
          "Module.1.Model.forward.0": null, "Module.1.layers.0.Block.forward.0": "Module.1.Model.forward.0",
          "Functional.linear.1.forward": "Module.1.layers.0.Block.forward.0",
          "Module.1.rope.Rope.forward.0": "Module.1.Model.forward.0",
          "Module.1.head.Linear.forward.0": "Module.1.Model.forward.0"})";
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const double at = 10.0 * rank;
    ranks.Add({{"Module.0.Model.forward.0", Call(Tensor(1, 0, 0, 1), Tensor(at + 1, 0, 0, 1))},
               {"Module.0.layers.0.Block.forward.0", Call(Tensor(at + 2, 0, 0, 1), Tensor(at + 3, 0, 0, 1))},
               {"Module.0.rope.Rope.forward.0", Call(Tensor(1, 0, 0, 1), Tensor(2, 0, 0, 1))},
               {"Module.1.Model.forward.0", Call(Tensor(1, 0, 0, 1), Tensor(at + 4, 0, 0, 1))},
               {"Module.1.layers.0.Block.forward.0", Call(Tensor(at + 5, 0, 0, 1), Tensor(at + 6, 0, 0, 1))},
               {"Functional.linear.1.forward", Call(Tensor(at + 7, 0, 0, 1), Tensor(at + 8, 0, 0, 1))},
               {"Module.1.rope.Rope.forward.0", Call(Tensor(1, 0, 0, 1), Tensor(2, 0, 0, 1))},
               {"Module.1.head.Linear.forward.0", Call(Tensor(1, 0, 0, 1), Tensor(9, 0, 0, 1))}},
              construct);
  }
  auto merged = ranks.Merge({.ranks = 2, .pipeline = 2, .chunks = 2});
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->size(), 1u);
  MergedStep& step = *merged->front();
  EXPECT_THAT(Names(step), ElementsAre("Module.0.layers.0.Block.forward.0", "Module.0.rope.Rope.forward.0",
                                       "Module.0.layers.1.Block.forward.0", "Functional.linear.1.forward",
                                       "Module.0.layers.2.Block.forward.0", "Module.0.head.Linear.forward.0",
                                       "Functional.linear_rank1.1.forward", "Module.0.layers.3.Block.forward.0",
                                       "Module.0.Model.forward.0", "DefaultModel"));
  EXPECT_EQ(RowOf(step, "Module.0.Model.forward.0.output.0").statistics[0].number(), 14) << "the last chunk's";
  EXPECT_EQ(RowOf(step, "Module.0.layers.3.Block.forward.0.output.0").statistics[0].number(), 16);
  EXPECT_THAT(std::string(ranks.Merge({.ranks = 2, .tensor = 2, .chunks = 2}).status().message()),
              HasSubstr("needs a pp of 2 or more"));
}

TEST(RankMergeTest, CallsOutsideOfModulesStayApart) {
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Add({{"Torch.add.0.forward", Call(Tensor(1, 0, 0, 1), Tensor(1, 0, 0, 1))},
               {"Torch.mul.0.forward", Call(Tensor(1, 0, 0, 1), Tensor(1, 0, 0, 1))}},
              R"({"Torch.add.0.forward": null, "Torch.mul.0.forward": null})");
  }
  auto merged = ranks.Merge({2, 2, 1});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(Names(*merged->front()),
              ElementsAre("Torch.add.0.forward", "Torch.mul.0.forward", "Apis_Between_Modules_Rank0.0",
                          "Torch.add_rank1.0.forward", "Torch.mul_rank1.0.forward", "Apis_Between_Modules_Rank1.0",
                          "Apis_Between_Modules_All_Ranks.0", "DefaultModel"));
}

TEST(RankMergeTest, OtherRanksThanTheLayoutAreRefused) {
  Ranks ranks;
  ranks.Add({}, kConstruct);
  EXPECT_THAT(std::string(ranks.Merge({2, 2, 1}).status().message()),
              HasSubstr("rank_size of 2, and the number of ranks is 1"));
  EXPECT_THAT(std::string(ranks.Merge({1, 2, 1}).status().message()), HasSubstr("a multiple of tp times pp"));
  auto alone = ranks.Merge({1, 1, 1});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(alone->front()->notes().front(), IsEmpty());
}

}  // namespace
}  // namespace msprobe::server
