#include "server/analysis/divergence/first_divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "server/analysis/table/memory_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::string Leaf(double value) {
  return R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[1],"Max":)" + std::to_string(value) +
         R"(,"Min":0.0,"Mean":0.0,"Norm":1.0,"requires_grad":false})";
}

std::string Call(double input, double output) {
  return R"({"input_args":[)" + Leaf(input) + R"(],"output":[)" + Leaf(output) + "]}";
}

std::optional<Divergence> Find(const MemoryTable& a, const MemoryTable& b, bool ignore_missing = false) {
  DivergenceOptions options;
  options.ignore_missing = ignore_missing;
  auto found = FindFirstDivergence(a, b, options);
  EXPECT_TRUE(found.ok()) << found.status();
  return *found;
}

TEST(AlignEntriesTest, ACallMoreDoesNotShiftTheRest) {
  const MemoryTable target({{"Torch.a.0.forward", "{}"},
                            {"Torch.f.0.forward", "{}"},
                            {"Torch.b.0.forward", "{}"},
                            {"Torch.f.1.forward", "{}"},
                            {"Torch.c.0.forward", "{}"}});
  const MemoryTable golden({{"Torch.a.0.forward", "{}"},
                            {"Torch.b.0.forward", "{}"},
                            {"Torch.f.0.forward", "{}"},
                            {"Torch.c.0.forward", "{}"}});
  EXPECT_THAT(AlignEntries(target.table(), golden.table(), NamesByMapping(target.table(), golden.table(), {}),
                           Pairing::kByContext),
              ElementsAre(Pair(0, 0), Pair(1, -1), Pair(2, 1), Pair(3, 2), Pair(4, 3)));
  EXPECT_THAT(AlignEntries(golden.table(), target.table(), NamesByMapping(golden.table(), target.table(), {}),
                           Pairing::kByContext),
              ElementsAre(Pair(0, 0), Pair(-1, 1), Pair(1, 2), Pair(2, 3), Pair(3, 4)));
}

TEST(FirstDivergenceTest, TellsComputationFromInput) {
  const MemoryTable golden({{"Torch.a.0.forward", Call(1, 2)}, {"Torch.b.0.forward", Call(2, 3)}});
  EXPECT_FALSE(Find(golden, golden));
  auto found = Find(MemoryTable({{"Torch.a.0.forward", Call(1, 2)}, {"Torch.b.0.forward", Call(2, 4)}}), golden);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kComputation);
  EXPECT_EQ(found->culprit, "Torch.b.0.forward.output.0");
  found = Find(MemoryTable({{"Torch.a.0.forward", Call(9, 2)}, {"Torch.b.0.forward", Call(2, 4)}}), golden);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kInput);
  EXPECT_EQ(found->target_entry, 0);
}

TEST(FirstDivergenceTest, MissingOperationsCanBePassedOver) {
  const MemoryTable golden({{"Torch.a.0.forward", Call(1, 2)}, {"Torch.b.0.forward", Call(2, 3)}});
  const MemoryTable target({{"Torch.b.0.forward", Call(2, 4)}});
  auto found = Find(target, golden);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kMissing);
  EXPECT_EQ(found->target_entry, -1);
  found = Find(target, golden, true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kComputation);
}

// The calls of `f` that the shorter side has stand elsewhere than those of the longer: by context they would be others.
TEST(FirstDivergenceTest, WhatASideThatLacksRecordsDoesNotHaveIsNoDivergence) {
  const std::string entered = R"({"input_args":[)" + Leaf(1) + "]}";
  const MemoryTable whole({{"Module.m.M.forward.0", Call(1, 9)},
                           {"Torch.f.0.forward", Call(1, 2)},
                           {"Torch.g.0.forward", Call(2, 3)},
                           {"Torch.f.1.forward", Call(3, 4)},
                           {"Torch.h.0.forward", Call(4, 5)},
                           {"Torch.f.2.forward", Call(5, 6)}});
  const auto ended_early = [&](double last) {
    return MemoryTable({{"Torch.f.0.forward", Call(1, 2)},
                        {"Torch.g.0.forward", Call(2, 3)},
                        {"Torch.f.1.forward", Call(3, last)},
                        {"Module.m.M.forward.0", entered}});
  };
  const auto find = [](const MemoryTable& a, const MemoryTable& b, bool target_lacks, bool golden_lacks) {
    DivergenceOptions options;
    options.target_lacks_records = target_lacks;
    options.golden_lacks_records = golden_lacks;
    auto found = FindFirstDivergence(a, b, options);
    EXPECT_TRUE(found.ok()) << found.status();
    return *found;
  };
  EXPECT_FALSE(find(ended_early(4), whole, true, false));
  EXPECT_FALSE(find(whole, ended_early(4), false, true));
  auto found = find(ended_early(7), whole, true, false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kComputation);
  EXPECT_EQ(found->culprit, "Torch.f.1.forward.output.0");
  EXPECT_TRUE(find(ended_early(4), whole, false, true)) << "the whole side has what the other lacks";
  EXPECT_TRUE(find(ended_early(4), whole, false, false));
}

TEST(FirstDivergenceTest, CountsTheCollectivesBefore) {
  const std::string same = Call(1, 1);
  const MemoryTable golden({{"Distributed.all_reduce.0.forward", same}, {"Distributed.all_reduce.1.forward", same}});
  const MemoryTable target(
      {{"Distributed.all_reduce.0.forward", same}, {"Distributed.all_reduce.1.forward", Call(1, 5)}});
  auto found = Find(target, golden);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kCommunication);
  EXPECT_EQ(found->collectives_before, 1u);
}

// Row of `consumer`, an input, gets what `producer` gave out.
void Connect(MemoryTable& side, std::string_view consumer, std::string_view producer, EdgeKind kind = EdgeKind::kSame) {
  StepTable& table = side.mutable_table();
  const auto find = [&](std::string_view name) {
    const auto found =
        std::find_if(table.rows.begin(), table.rows.end(), [&](const Row& row) { return row.name == name; });
    EXPECT_NE(found, table.rows.end()) << name;
    return static_cast<int32_t>(found - table.rows.begin());
  };
  Row& row = table.rows[static_cast<size_t>(find(consumer))];
  row.edge = kind;
  if (!producer.empty()) row.producer = find(producer);
}

TEST(FirstDivergenceTest, MemoryThatNothingWasWrittenToHasAnyValue) {
  const auto side = [](double unwritten, double filled) {
    MemoryTable table(
        {{"Torch.empty.0.forward", Call(1, unwritten)}, {"Tensor.copy_.0.forward", Call(unwritten, filled)}});
    Connect(table, "Tensor.copy_.0.forward.input.0", "Torch.empty.0.forward.output.0");
    return table;
  };
  EXPECT_FALSE(Find(side(1, 3), side(2, 3)));
  const auto found = Find(side(1, 3), side(2, 4));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kComputation);
  EXPECT_EQ(found->culprit, "Tensor.copy_.0.forward.output.0");
}

TEST(FirstDivergenceTest, WhatIsOverwrittenIsNoCauseWhereNoOperationMadeIt) {
  const auto side = [](double before, double read) {
    return MemoryTable({{"Torch.a.0.forward", Call(1, 2)},
                        {"Tensor.__setitem__.0.forward", Call(before, 2)},
                        {"Torch.b.0.forward", Call(read, 3)}});
  };
  EXPECT_FALSE(Find(side(7, 2), side(8, 2)));
  auto found = Find(side(7, 5), side(8, 6));
  ASSERT_TRUE(found) << "what the operation left as it was is read";
  EXPECT_EQ(found->culprit, "Torch.b.0.forward.input.0");

  const auto made = [](double before) {
    MemoryTable table({{"Torch.zeros.0.forward", Call(1, 7)}, {"Tensor.__setitem__.0.forward", Call(before, 2)}});
    Connect(table, "Tensor.__setitem__.0.forward.input.0", "Torch.zeros.0.forward.output.0");
    return table;
  };
  found = Find(made(8), made(9));
  ASSERT_TRUE(found) << "a recorded operation made it, and it changed since";
  EXPECT_EQ(found->culprit, "Tensor.__setitem__.0.forward.input.0");
}

TEST(FirstDivergenceTest, FollowsDataToAnOperationOfAnotherName) {
  MemoryTable target({{"Torch.a.0.forward", Call(1, 2)},
                      {"Torch.fast_gelu.0.forward", Call(2, 4)},
                      {"Torch.view.0.forward", Call(4, 4)},
                      {"Torch.b.0.forward", Call(4, 5)}});
  MemoryTable golden({{"Torch.a.0.forward", Call(1, 2)},
                      {"Functional.gelu.0.forward", Call(2, 3)},
                      {"Torch.b.0.forward", Call(3, 6)}});
  auto found = Find(target, golden, true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->culprit, "Torch.b.0.forward.input.0") << "without edges the neighbours' names decide";

  Connect(target, "Torch.fast_gelu.0.forward.input.0", "Torch.a.0.forward.output.0");
  Connect(target, "Torch.view.0.forward.input.0", "Torch.fast_gelu.0.forward.output.0");
  Connect(target, "Torch.b.0.forward.input.0", "Torch.fast_gelu.0.forward.output.0", EdgeKind::kView);
  Connect(golden, "Functional.gelu.0.forward.input.0", "Torch.a.0.forward.output.0");
  Connect(golden, "Torch.b.0.forward.input.0", "Functional.gelu.0.forward.output.0");
  found = Find(target, golden, true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kComputation);
  EXPECT_EQ(found->culprit, "Torch.fast_gelu.0.forward.output.0");
  EXPECT_EQ(found->golden_entry, 1);
  EXPECT_THAT(found->path, ElementsAre(3));
}

TEST(FirstDivergenceTest, TellsAnInputThatWasChangedSinceFromOneThatNobodyMade) {
  MemoryTable target({{"Torch.a.0.forward", Call(1, 2)}, {"Torch.b.0.forward", Call(9, 3)}});
  MemoryTable golden({{"Torch.a.0.forward", Call(1, 2)}, {"Torch.b.0.forward", Call(2, 3)}});
  for (MemoryTable* side : {&target, &golden}) {
    Connect(*side, "Torch.a.0.forward.input.0", "", EdgeKind::kOutside);
    Connect(*side, "Torch.b.0.forward.input.0", "Torch.a.0.forward.output.0", EdgeKind::kChanged);
  }
  auto found = Find(target, golden);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kInput);
  EXPECT_EQ(found->target_entry, 1);
  const Row& culprit = target.table().rows[static_cast<size_t>(found->culprit_row)];
  EXPECT_EQ(target.table().rows[static_cast<size_t>(culprit.producer)].name, "Torch.a.0.forward.output.0");
}

TEST(FirstDivergenceTest, AWeightIsWhatNeedsAGradientAndComesFromOutside) {
  MemoryTable target({{"Torch.a.0.forward", Call(1, 9)}, {"Torch.b.0.forward", Call(9, 3)}});
  MemoryTable golden({{"Torch.a.0.forward", Call(1, 9)}, {"Torch.b.0.forward", Call(2, 3)}});
  target.mutable_table().rows[2].requires_grad = Row::Grad::kTrue;
  EXPECT_EQ(Find(target, golden)->blame, Blame::kInput) << "an output before it has the same numbers";
  Connect(target, "Torch.b.0.forward.input.0", "", EdgeKind::kOutside);
  EXPECT_EQ(Find(target, golden)->blame, Blame::kWeight);
}

// A layer of MindSpore and of PyTorch, with the operators that each runs for it.
std::pair<MemoryTable, MemoryTable> LayerOfBoth(double weight) {
  const auto layer = [](std::string_view dtype, std::string_view name, double value, std::string_view more) {
    const auto leaf = [&](double max) {
      return Cat(R"({"type":"t.Tensor","dtype":")", dtype, R"(","shape":[1],"Max":)", max,
                 R"(,"Min":0.0,"Mean":0.0,"Norm":1.0})");
    };
    return Cat(R"({"input_args":[)", leaf(1), more, R"(],"parameters":{")", name, "\":", leaf(value), R"(},"output":[)",
               leaf(value + 1), "]}");
  };
  MemoryTable mindspore(
      {{"Primitive.norm.LayerNorm.0.forward", Call(1, 9)},
       {"Cell.a.LayerNorm.forward.0", layer("Float32", "gamma", 1, "")},
       {"Cell.b.LayerNorm.forward.0", layer("Float32", "gamma", weight, R"(,{"type":"int","value":1})")}});
  mindspore.mutable_table().framework = "mindspore";
  return {std::move(mindspore),
          MemoryTable({{"Functional.layer_norm.0.forward", Call(1, 8)},
                       {"Module.a.LayerNorm.forward.0", layer("torch.float32", "weight", 1, "")},
                       {"Module.b.LayerNorm.forward.0", layer("torch.float32", "weight", 2, "")}})};
}

TEST(FirstDivergenceTest, NamesTheModuleWhoseWeightDiffersBetweenFrameworks) {
  const auto [same, golden] = LayerOfBoth(2);
  EXPECT_FALSE(Find(same, golden)) << "operators and arguments of one framework alone are no divergence";
  const auto [faulty, _] = LayerOfBoth(3);
  for (const bool swapped : {false, true}) {
    const auto found = swapped ? Find(golden, faulty) : Find(faulty, golden);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->blame, Blame::kWeight);
    EXPECT_EQ(found->culprit, swapped ? "Module.b.LayerNorm.forward.0.parameters.weight"
                                      : "Cell.b.LayerNorm.forward.0.parameters.gamma");
    EXPECT_EQ(found->target_entry, 2);
  }
}

TEST(FirstDivergenceTest, OfTwoFrameworksWithoutAnyPartnerTheFirstOperationIsMissing) {
  MemoryTable target({{"Cell.a.Dense.forward.0", Call(1, 2)}});
  target.mutable_table().framework = "mindspore";
  const auto found = Find(target, MemoryTable({{"Module.b.Linear.forward.0", Call(1, 2)}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->blame, Blame::kMissing);
}

TEST(FirstDivergenceTest, TakesAMapping) {
  const MemoryTable target({{"Module.a.A.forward.0", Call(1, 2)}, {"Module.b.A.forward.0", Call(2, 4)}});
  const MemoryTable golden({{"Module.x.A.forward.0", Call(1, 2)}, {"Module.y.A.forward.0", Call(2, 3)}});
  DivergenceOptions options;
  options.comparison.mapping.cells = true;
  options.comparison.mapping.cell_names = {{"a.A", "x.A"}, {"b.A", "y.A"}};
  auto found = FindFirstDivergence(target, golden, options);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->culprit, "Module.b.A.forward.0.output.0");
  options.comparison.mapping = {};
  options.comparison.mapping.rows = {{"Module.a.A.forward.0.input.0", "Module.x.A.forward.0.input.0"},
                                     {"Module.a.A.forward.0.output.0", "Module.x.A.forward.0.output.0"},
                                     {"Module.b.A.forward.0.input.0", "Module.y.A.forward.0.input.0"},
                                     {"Module.b.A.forward.0.output.0", "Module.y.A.forward.0.output.0"}};
  found = FindFirstDivergence(target, golden, options);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->blame, Blame::kComputation);
  EXPECT_EQ((*found)->golden_entry, 1);
}

}  // namespace
}  // namespace msprobe::server
