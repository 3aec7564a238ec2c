#include "server/analysis/divergence/first_divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/analysis/table/memory_table.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::string Call(double input, double output) {
  const auto leaf = [](double value) {
    return R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[1],"Max":)" + std::to_string(value) +
           R"(,"Min":0.0,"Mean":0.0,"Norm":1.0,"requires_grad":false})";
  };
  return R"({"input_args":[)" + leaf(input) + R"(],"output":[)" + leaf(output) + "]}";
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
  EXPECT_THAT(AlignEntries(target.table(), golden.table()),
              ElementsAre(Pair(0, 0), Pair(1, -1), Pair(2, 1), Pair(3, 2), Pair(4, 3)));
  EXPECT_THAT(AlignEntries(golden.table(), target.table()),
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

}  // namespace
}  // namespace msprobe::server
