#include "server/format/series/shard_name.h"

#include <gmock/gmock.h>

namespace msprobe::server {
namespace {

using testing::ElementsAre;

TEST(ShardNameTest, SaysWhichPartOfWhatARankHas) {
  const auto name = ShardName::Of("fc.weight.parameter.shard(512/1024@0-3):norm");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->tensor, "fc.weight.parameter");
  EXPECT_EQ(name->elements, 512U);
  EXPECT_EQ(name->whole, 1024U);
  EXPECT_EQ(name->group, "0-3");
  EXPECT_EQ(name->statistic, "norm");
  EXPECT_THAT(name->Ranks(), ElementsAre(0, 1, 2, 3));
}

TEST(ShardNameTest, AGroupMayBeStrided) {
  EXPECT_THAT(ShardName::Of("w.shard(1/4@1-7+2):max")->Ranks(), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(ShardName::Of("w.shard(1/4@9,0-1):max")->Ranks(), ElementsAre(0, 1, 9));
}

TEST(ShardNameTest, AnotherNameIsNone) {
  for (const char* name :
       {"loss", "w.parameter:norm", "w.shard(1/4@0-3)", "w.shard(5/4@0-3):max", "w.shard(0/4@0-3):max",
        "w.shard(1/4@3-0):max", "w.shard(1/4@):max", "w.shard(1/4@0-3+0):max", "w.shard(a/4@0-3):max",
        "w.shard(1@0-3/4):max", "w.shard(1/4@0-4294967295):max"}) {
    EXPECT_FALSE(ShardName::Of(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace msprobe::server
