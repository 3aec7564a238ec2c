#include "server/monitor/watched_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

TEST(ParseWatched, TakesEntries) {
  auto all = ParseWatched("loss=*cross_entropy.*.output.0:max,scale=Torch.mul.0.forward.output.0:norm");
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].name, "loss");
  EXPECT_EQ((*all)[0].glob, "*cross_entropy.*.output.0");
  EXPECT_EQ((*all)[0].statistic, Statistic::kMax);
  EXPECT_EQ((*all)[1].statistic, Statistic::kNorm);
  EXPECT_TRUE(ParseWatched("")->empty());
}

TEST(ParseWatched, NamesWhatIsWrong) {
  for (const auto& [text, why] : {std::pair("loss", "\"loss\" lacks = or :"),
                                  {"a b=x:max", "has a NAME"},
                                  {"=x:max", "has a NAME"},
                                  {"a=:max", "has no GLOB"},
                                  {"a=x:median", "has none of max, min"},
                                  {"a=x:max,a=y:max", "\"a\" stands twice"}}) {
    EXPECT_THAT(ParseWatched(text).status().message(), HasSubstr(why)) << text;
  }
  std::string many;
  for (int i = 0; i < 17; ++i) many += Cat("w", i, "=x:max,");
  EXPECT_THAT(ParseWatched(many).status().message(), HasSubstr("17 entries, allowed are 16"));
}

}  // namespace
}  // namespace msprobe::server
