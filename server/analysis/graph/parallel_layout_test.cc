#include "server/analysis/graph/parallel_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Wrong(const ParallelLayout& layout) { return std::string(CheckLayout(layout).message()); }

TEST(ParallelLayoutTest, NeighboursShareTensorsUnlessTheOrderSaysOtherwise) {
  const ParallelLayout layout{8, 2, 2, "tp-cp-ep-dp-pp"};
  ASSERT_TRUE(CheckLayout(layout).ok());
  EXPECT_THAT(GroupsOf(layout, "tp"),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
  EXPECT_THAT(GroupsOf(layout, "pp"),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  const ParallelLayout other{4, 2, 2, "pp-dp-tp"};
  ASSERT_TRUE(CheckLayout(other).ok());
  EXPECT_THAT(GroupsOf(other, "tp"), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(GroupsOf(other, "pp"), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(ParallelLayoutTest, RanksAloneAreGroupsOfTheirOwn) {
  EXPECT_THAT(GroupsOf({2, 1, 1, "tp-dp-pp"}, "tp"), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(ParallelLayoutTest, SaysWhyALayoutIsImpossible) {
  EXPECT_THAT(Wrong({4, 0, 1, "tp-dp-pp"}), HasSubstr("each must be 1 or more"));
  EXPECT_THAT(Wrong({4, 3, 1, "tp-dp-pp"}), HasSubstr("a multiple of tp times pp"));
  EXPECT_THAT(Wrong({4, 4, 2, "tp-dp-pp"}), HasSubstr("a multiple of tp times pp"));
  EXPECT_THAT(Wrong({4, 2, 2, "tp-dp"}), HasSubstr("the order lacks pp"));
  EXPECT_THAT(Wrong({4, 2, 2, "tp-pp-tp"}), HasSubstr("twice"));
  EXPECT_THAT(Wrong({4, 2, 2, "tp,pp"}), HasSubstr("with - between them"));
}

}  // namespace
}  // namespace msprobe::server
