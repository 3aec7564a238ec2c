#include "server/analysis/graph/graph_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class GraphPictureTest : public testing::Test {
 protected:
  int32_t Add(std::string_view name, int32_t parent) {
    GraphNode node;
    node.name = name;
    node.parent = parent;
    nodes_.push_back(node);
    const auto number = static_cast<int32_t>(nodes_.size()) - 1;
    if (parent >= 0) nodes_[static_cast<size_t>(parent)].children.push_back(number);
    return number;
  }
  GraphPicture With(const std::set<int32_t>& open) {
    const StepGraph graph = StepGraph::Of(nodes_, 1);
    return {graph, CallEdges(graph, {}), open};
  }
  static std::vector<int32_t> NodesOf(const GraphPicture& picture) {
    std::vector<int32_t> nodes;
    for (const GraphPicture::Box& box : picture.boxes()) nodes.push_back(box.node);
    return nodes;
  }

  std::vector<GraphNode> nodes_;
  const int32_t root_ = Add("root", -1);
  const int32_t first_ = Add("first", root_), second_ = Add("second", root_);
  const int32_t inner_ = Add("inner", first_), leaf_ = Add("leaf", first_);
  const int32_t deep_ = Add("deep", inner_);
};

TEST_F(GraphPictureTest, ShowsWhatLiesInOpenModulesInOrderOfExecution) {
  EXPECT_THAT(NodesOf(With({})), ElementsAre(first_, second_));
  EXPECT_THAT(NodesOf(With({first_})), ElementsAre(first_, inner_, leaf_, second_));
  EXPECT_THAT(NodesOf(With({first_, inner_, second_})), ElementsAre(first_, inner_, deep_, leaf_, second_));
  EXPECT_THAT(NodesOf(With({inner_})), ElementsAre(first_, second_)) << "the module around it is closed";
}

TEST_F(GraphPictureTest, AnOpenBoxHoldsItsCallsAndPushesWhatComesAfterDown) {
  const GraphPicture picture = With({first_});
  const GraphPicture::Box& module = *picture.Find(first_);
  for (const int32_t call : {inner_, leaf_}) {
    const GraphPicture::Box& box = *picture.Find(call);
    EXPECT_GE(box.x, module.x);
    EXPECT_GE(box.y, module.y + GraphPicture::kHead);
    EXPECT_LE(box.x + box.wide, module.x + module.wide);
    EXPECT_LT(box.y + box.high, module.y + module.high);
  }
  EXPECT_GT(picture.Find(second_)->y, module.y + module.high);
  EXPECT_LE(picture.Find(second_)->y + GraphPicture::kBoxHigh, picture.size().high);
  EXPECT_EQ(picture.Find(deep_), nullptr);
}

TEST_F(GraphPictureTest, LinesJoinNeighboursFromBelowToAbove) {
  const GraphPicture picture = With({first_});
  ASSERT_EQ(picture.lines().size(), 2);
  const GraphPicture::Line& line = picture.lines()[0];
  EXPECT_EQ(line.from, first_);
  EXPECT_EQ(line.to, second_);
  EXPECT_FALSE(line.data);
  EXPECT_EQ(line.begin.y, picture.Find(first_)->y + picture.Find(first_)->high);
  EXPECT_EQ(line.end.y, picture.Find(second_)->y);
}

TEST_F(GraphPictureTest, AWindowShowsWhatItMeets) {
  const GraphPicture picture = With({first_});
  const GraphPicture::Box& last = *picture.Find(second_);
  const std::vector<uint32_t> below = picture.BoxesIn({last.x, last.y + 1, 10, 10});
  ASSERT_THAT(below, ElementsAre(3));
  EXPECT_THAT(picture.BoxesIn({0, 0, 1e6F, 1e6F}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(picture.LinesIn({0, 0, 1e6F, 1e6F}), ElementsAre(0, 1));
  EXPECT_THAT(picture.LinesIn({0, last.y + 2, 1e6F, 10}), IsEmpty());
  EXPECT_THAT(picture.BoxesIn({1e6F, 0, 10, 10}), IsEmpty());
}

}  // namespace
}  // namespace msprobe::server
