#include "server/shards/shard_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "server/store/disk/scratch_directory.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::Rank RankOf(uint32_t number) {
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  rank.set_number(number);
  return rank;
}

TEST(ShardListTest, TakesAddressesInAnyOrder) {
  EXPECT_THAT(*ParseShardList("b:2, a:1,unix:/run/s"), ElementsAre("a:1", "b:2", "unix:/run/s"));
  EXPECT_THAT(*ParseShardList(""), ElementsAre());
}

TEST(ShardListTest, TakesAFile) {
  ScratchDirectory directory;
  const std::string path = directory / "shards";
  std::ofstream(path) << "# three\nc:1\na:1, b:1  # two\n\n";
  EXPECT_THAT(*ParseShardList("@" + path), ElementsAre("a:1", "b:1", "c:1"));
  EXPECT_THAT(std::string(ParseShardList("@/nowhere").status().message()), HasSubstr("/nowhere cannot be read"));
}

TEST(ShardListTest, NamesWhatIsNoAddress) {
  for (const char* wrong : {"a", "a:0", "a:70000", ":1", "a:1,unix:rel", "a b:1", "dns:///a:1"}) {
    EXPECT_THAT(std::string(ParseShardList(wrong).status().message()), HasSubstr("is no address")) << wrong;
  }
  EXPECT_THAT(std::string(ParseShardList("a:1,b:1,a:1").status().message()), HasSubstr("\"a:1\" stands there twice"));
}

TEST(ShardListTest, RanksSpreadEvenlyAndStayWhereTheyAre) {
  const ShardList three = {"a:1", "b:1", "c:1"};
  std::map<std::string, int> ranks;
  for (uint32_t rank = 0; rank < 3000; ++rank) ++ranks[ShardOfRank(three, "job", RankOf(rank))];
  for (const std::string& shard : three) EXPECT_NEAR(ranks[shard], 1000, 120) << shard;

  const ShardList four = {"a:1", "b:1", "c:1", "d:1"};
  int moved = 0;
  for (uint32_t rank = 0; rank < 3000; ++rank) {
    const std::string& now = ShardOfRank(four, "job", RankOf(rank));
    if (now == ShardOfRank(three, "job", RankOf(rank))) continue;
    EXPECT_EQ(now, "d:1") << "a rank moved between shards that both lists have";
    ++moved;
  }
  EXPECT_NEAR(moved, 750, 120);
}

// The binding says where stored records lie, so it must not change from release to release.
TEST(ShardListTest, TheBindingIsFixed) {
  const ShardList shards = {"s0:50051", "s1:50051", "s2:50051"};
  std::string bound;
  for (uint32_t rank = 0; rank < 12; ++rank) bound += ShardOfRank(shards, "train", RankOf(rank)).substr(1, 1);
  v1::Rank process;
  process.set_kind(v1::Rank::PROCESS);
  process.set_number(4711);
  bound += ShardOfRank(shards, "train", process).substr(1, 1);
  EXPECT_EQ(bound, "0011210111101");
}

TEST(ShardListTest, EveryServerAsksInTheSameOrder) {
  EXPECT_EQ(ShardsByWeight({"a:1", "b:1", "c:1"}, "job"), ShardsByWeight({"c:1", "a:1", "b:1"}, "job"));
}

}  // namespace
}  // namespace msprobe::server
