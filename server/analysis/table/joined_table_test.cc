#include "server/analysis/table/joined_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "server/analysis/table/memory_table.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Numbers {
  std::string max = "1.0";
  std::string min = "0.0";
  std::string mean = "0.5";
  std::string norm = "1.0";
};

std::string Leaf(const std::string& shape, const Numbers& numbers, const std::string& data_name = "") {
  return R"({"type":"torch.Tensor","dtype":"torch.float32","shape":)" + shape + R"(,"Max":)" + numbers.max +
         R"(,"Min":)" + numbers.min + R"(,"Mean":)" + numbers.mean + R"(,"Norm":)" + numbers.norm +
         (data_name.empty() ? "" : R"(,"data_name":")" + data_name + "\"") + "}";
}

std::string Call(const std::string& output) { return R"({"input_args":[],"output":[)" + output + "]}"; }

using Entries = std::vector<std::pair<std::string, std::string>>;
const char kOp[] = "Torch.mm.0.forward";

JoinedSides Join(const std::vector<Entries>& target, const std::vector<Entries>& golden) {
  const auto made = [](const std::vector<Entries>& ranks) {
    std::vector<std::unique_ptr<TableSource>> sources;
    for (const Entries& entries : ranks) sources.push_back(std::make_unique<MemoryTable>(entries));
    return sources;
  };
  return JoinLayouts(made(target), made(golden), {});
}

std::vector<double> StatisticsOf(const Row& row) {
  std::vector<double> values;
  for (const Cell& cell : row.statistics) values.push_back(cell.number());
  return values;
}

TEST(JoinedStepTest, ShardsAreJoinedAlongTheAxisThatAddsUp) {
  const JoinedSides sides = Join({{{kOp, Call(Leaf("[2, 3]", {"4.0", "-1.0", "1.0", "3.0"}))}},
                                  {{kOp, Call(Leaf("[2, 1]", {"2.0", "-5.0", "5.0", "4.0"}))}}},
                                 {{{kOp, Call(Leaf("[2, 4]", {"4.0", "-5.0", "2.0", "5.0"}))}}});
  const StepTable& table = sides.target->table();
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.text(table.rows[0].shape), "[2, 4]");
  EXPECT_THAT(StatisticsOf(table.rows[0]), ElementsAre(4, -5, 2, 5));  // means by elements, norms by squares
  EXPECT_THAT(table.layouts, ElementsAre("joined along axis 1 from 2 ranks"));
  EXPECT_THAT(sides.golden->table().layouts, ElementsAre(""));
}

TEST(JoinedStepTest, NaNOfOneShardIsThatOfTheWhole) {
  const JoinedSides sides = Join({{{kOp, Call(Leaf("[2]", {}))}}, {{kOp, Call(Leaf("[2]", {"NaN", "NaN"}))}}},
                                 {{{kOp, Call(Leaf("[4]", {}))}}});
  EXPECT_TRUE(std::isnan(sides.target->table().rows[0].statistics[0].number()));
}

TEST(JoinedStepTest, RanksThatAgreeAreReplicas) {
  const std::string leaf = Leaf("[4]", {});
  const JoinedSides sides = Join({{{kOp, Call(leaf)}}, {{kOp, Call(leaf)}}}, {{{kOp, Call(leaf)}}});
  EXPECT_THAT(sides.target->table().layouts, ElementsAre("replicated on 2 ranks"));
  EXPECT_THAT(StatisticsOf(sides.target->table().rows[0]), ElementsAre(1, 0, 0.5, 1));
}

TEST(JoinedStepTest, RanksThatDisagreeHaveNothingToCompare) {
  const JoinedSides sides =
      Join({{{kOp, Call(Leaf("[4]", {}))}}, {{kOp, Call(Leaf("[4]", {"9.0", "0.0", "0.5", "9.5"}))}}},
           {{{kOp, Call(Leaf("[4]", {}))}}});
  EXPECT_THAT(sides.target->table().layouts, ElementsAre(HasSubstr("not compared")));
  EXPECT_EQ(sides.target->table().rows[0].statistics[0].kind, Cell::Kind::kNone);
}

TEST(JoinedStepTest, GroupsOfShardsThatAgreeAreTakenOnce) {
  const std::string a = Leaf("[2]", {"1.0", "0.0", "0.5", "3.0"});
  const std::string b = Leaf("[2]", {"2.0", "0.0", "1.5", "4.0"});
  const JoinedSides sides =
      Join({{{kOp, Call(a)}}, {{kOp, Call(b)}}, {{kOp, Call(a)}}, {{kOp, Call(b)}}}, {{{kOp, Call(Leaf("[4]", {}))}}});
  EXPECT_THAT(sides.target->table().layouts, ElementsAre("joined along axis 0 from 2 ranks, replicated on 2 ranks"));
  EXPECT_THAT(StatisticsOf(sides.target->table().rows[0]), ElementsAre(2, 0, 1, 5));
}

TEST(JoinedStepTest, SizesOfShardsAreTakenAsEqual) {
  const auto entry = [](int value) {
    return Entries{{"Tensor.view.0.forward",
                    R"({"input_args":[{"type":"int","value":)" + std::to_string(value) + R"(}],"output":[]})"}};
  };
  const JoinedSides sides = Join({entry(8), entry(8)}, {entry(16)});
  EXPECT_EQ(sides.target->table().rows[0].statistics[0].integer, 16);
  EXPECT_THAT(sides.target->table().layouts, ElementsAre("size of a shard"));
  EXPECT_EQ(Join({entry(8), entry(8)}, {entry(17)}).target->table().rows[0].statistics[0].integer, 8);
}

TEST(JoinedStepTest, RecordsThatTheFirstRankLacksStandBehindItsOwn) {
  const std::string leaf = Leaf("[4]", {});
  const JoinedSides sides = Join({{{"Torch.a.0.forward", Call(leaf)}}, {{"Torch.b.0.forward", Call(leaf)}}},
                                 {{{"Torch.b.0.forward", Call(leaf)}, {"Torch.a.0.forward", Call(leaf)}}});
  std::vector<std::string> names;
  for (const Entry& entry : sides.target->table().entries) names.emplace_back(entry.name);
  EXPECT_THAT(names, ElementsAre("Torch.a.0.forward", "Torch.b.0.forward"));
}

TEST(JoinedStepTest, ContentsAreJoinedToo) {
  const auto rank = [](const std::vector<float>& elements) {
    auto step =
        std::make_unique<MemoryTable>(Entries{{kOp, Call(Leaf("[2, 2]", {}, "Torch.mm.0.forward.output.0.npy"))}});
    TensorDescription description;
    description.shape = {2, 2};
    step->AddContent("Torch.mm.0.forward.output.0.npy", description, BytesOf(elements));
    return step;
  };
  std::vector<std::unique_ptr<TableSource>> target;
  target.push_back(rank({1, 2, 3, 4}));
  target.push_back(rank({5, 6, 7, 8}));
  std::vector<std::unique_ptr<TableSource>> golden;
  golden.push_back(std::make_unique<MemoryTable>(Entries{{kOp, Call(Leaf("[2, 4]", {}))}}));
  const JoinedSides sides = JoinLayouts(std::move(target), std::move(golden), {});
  ASSERT_THAT(sides.target->table().layouts, ElementsAre("joined along axis 1 from 2 ranks"));
  auto tensor = sides.target->OpenTensor(sides.target->table().rows[0]);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT((*tensor)->description().shape, ElementsAre(2, 4));
  std::string content;
  ASSERT_TRUE((*tensor)
                  ->Read([&](std::string_view chunk) {
                    content += chunk;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(content, BytesOf(std::vector<float>{1, 2, 5, 6, 3, 4, 7, 8}));
}

}  // namespace
}  // namespace msprobe::server
