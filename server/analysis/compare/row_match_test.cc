#include "server/analysis/compare/row_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// One entry of one row for each name.
StepTable Table(const std::vector<std::string>& entries) {
  StepTable table;
  for (const std::string& name : entries) {
    Entry entry;
    entry.name = table.arena.Add(name);
    entry.first_row = static_cast<uint32_t>(table.rows.size());
    entry.rows = 1;
    Row row;
    row.name = table.arena.Join({name, ".input.0"});
    table.entries.push_back(entry);
    table.rows.push_back(row);
  }
  return table;
}

TEST(NameAlikeTest, ASideWithFilesGetsTheNamesOfPlaces) {
  StepTable with_files = Table({"Torch.a.0.forward"}), without = Table({"Torch.a.0.forward"});
  with_files.mode = StepTable::Mode::kTensor;
  with_files.rows[0].name = "Torch.a.0.forward.kwargs.mask";
  without.rows[0].name = "Torch.a.0.forward.input.mask";
  StepTable other = Table({"Torch.a.0.forward"});
  other.mode = StepTable::Mode::kTensor;
  NameAlike(other, with_files);
  EXPECT_EQ(with_files.rows[0].name, "Torch.a.0.forward.kwargs.mask") << "both have files";
  NameAlike(without, with_files);
  EXPECT_EQ(with_files.rows[0].name, without.rows[0].name);
}

TEST(MatchExactlyTest, MatchesByNameInTheTargetsOrder) {
  const RowMatch match = MatchExactly(Table({"Torch.b.0.forward", "Torch.a.0.forward", "Torch.c.0.forward"}),
                                      Table({"Torch.a.0.forward", "Torch.d.0.forward", "Torch.b.0.forward"}));
  EXPECT_THAT(match.pairs, ElementsAre(Pair(0, 2), Pair(1, 0), Pair(2, kNoRow)));
  EXPECT_THAT(match.golden_only, ElementsAre(1));
}

TEST(MatchExactlyTest, BackwardCallsAreNumberedInOrderOfAppearance) {
  const RowMatch match =
      MatchExactly(Table({"Torch.a.3.backward", "Torch.a.1.backward", "Module.m.M.backward.7"}),
                   Table({"Torch.a.0.backward", "Torch.a.1.backward", "Module.m.M.backward.0", "Torch.a.2.backward"}));
  EXPECT_THAT(match.pairs, ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2)));
  EXPECT_THAT(match.golden_only, ElementsAre(3));
}

TEST(MatchExactlyTest, FurtherPassesOverOneForwardCallKeepTheirNumbers) {
  const std::vector<std::string> names = {"Torch.a.0.backward", "Torch.a.0.backward.1", "Torch.a.0.backward.2",
                                          "Module.m.L.backward.0", "Module.m.L.backward.0.1"};
  const RowMatch match = MatchExactly(Table(names), Table({names[2], names[4], names[0], names[3]}));
  EXPECT_THAT(match.pairs, ElementsAre(Pair(0, 2), Pair(1, kNoRow), Pair(2, 0), Pair(3, 3), Pair(4, 1)));
  EXPECT_THAT(match.golden_only, IsEmpty());
}

TEST(MatchExactlyTest, ANameThatStandsTwiceGivesEveryCombination) {
  StepTable target = Table({"Torch.a.0.forward"});
  StepTable golden = Table({"Torch.a.0.forward"});
  target.rows.push_back(target.rows[0]);
  target.entries[0].rows = 2;
  golden.rows.push_back(golden.rows[0]);
  golden.entries[0].rows = 2;
  EXPECT_THAT(MatchExactly(target, golden).pairs, ElementsAre(Pair(0, 0), Pair(0, 1), Pair(1, 0), Pair(1, 1)));
}

TEST(MatchFuzzilyTest, IgnoresTheNumberOfTheCall) {
  const RowMatch match = MatchFuzzily(Table({"Torch.x.0.forward", "Torch.a.5.forward", "Torch.b.6.forward"}),
                                      Table({"Torch.a.0.forward", "Torch.b.1.forward"}));
  EXPECT_THAT(match.pairs, ElementsAre(Pair(0, kNoRow), Pair(1, 0), Pair(2, 1)));
  EXPECT_THAT(match.golden_only, IsEmpty());
}

TEST(MatchFuzzilyTest, TheNumberOfAModulesCallStays) {
  const RowMatch match = MatchFuzzily(Table({"Module.m.M.forward.1"}), Table({"Module.m.M.forward.0"}));
  EXPECT_THAT(match.pairs, ElementsAre(Pair(0, kNoRow)));
}

// The walk of mindstudio-probe as it is defined: two queues, searched from their beginnings.
std::vector<std::pair<int32_t, int32_t>> SlowWalk(const std::vector<std::string>& a,
                                                  const std::vector<std::string>& b) {
  std::vector<int32_t> ours;
  std::vector<int32_t> theirs;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  size_t seen = 0;
  const auto same = [&](int32_t x, int32_t y) { return a[static_cast<size_t>(x)] == b[static_cast<size_t>(y)]; };
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size()) ours.push_back(static_cast<int32_t>(i)), ++seen;
    if (i < b.size()) theirs.push_back(static_cast<int32_t>(i));
    if (ours.empty() != theirs.empty()) break;
    int at = -1;
    int other = -1;
    for (size_t j = 0; j < theirs.size() && at < 0; ++j) {
      if (same(ours.back(), theirs[j])) at = static_cast<int>(ours.size()) - 1, other = static_cast<int>(j);
    }
    for (size_t j = 0; j < ours.size() && at < 0; ++j) {
      if (same(ours[j], theirs.back())) at = static_cast<int>(j), other = static_cast<int>(theirs.size()) - 1;
    }
    if (at < 0) continue;
    for (int j = 0; j < at; ++j) pairs.emplace_back(ours[static_cast<size_t>(j)], kNoRow);
    pairs.emplace_back(ours[static_cast<size_t>(at)], theirs[static_cast<size_t>(other)]);
    ours.erase(ours.begin(), ours.begin() + at + 1);
    theirs.erase(theirs.begin(), theirs.begin() + other + 1);
  }
  for (int32_t left : ours) pairs.emplace_back(left, kNoRow);
  for (size_t left = seen; left < a.size(); ++left) pairs.emplace_back(static_cast<int32_t>(left), kNoRow);
  return pairs;
}

TEST(MatchFuzzilyTest, IsTheSlowWalk) {
  std::mt19937 draw(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> names[2];
    std::vector<std::string> keys[2];
    for (int side = 0; side < 2; ++side) {
      const size_t count = draw() % 30;
      for (size_t i = 0; i < count; ++i) {
        const std::string name = "Torch.op" + std::to_string(draw() % 6);
        names[side].push_back(name + "." + std::to_string(i) + ".forward");
        keys[side].push_back(name);
      }
    }
    EXPECT_EQ(MatchFuzzily(Table(names[0]), Table(names[1])).pairs, SlowWalk(keys[0], keys[1]));
  }
}

TEST(DTypesMatchTest, FloatsMatchOneAnother) {
  EXPECT_TRUE(DTypesMatch("torch.float16", "torch.bfloat16"));
  EXPECT_TRUE(DTypesMatch("torch.int64", "torch.int64"));
  EXPECT_FALSE(DTypesMatch("torch.float32", "float32"));
  EXPECT_FALSE(DTypesMatch("torch.int64", "torch.int32"));
  EXPECT_FALSE(DTypesMatch("torch.float32", "torch.float8_e5m2"));
}

}  // namespace
}  // namespace msprobe::server
