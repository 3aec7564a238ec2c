#include "server/analysis/graph/call_edges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Edge = CallEdges::Edge;

class CallEdgesTest : public testing::Test {
 protected:
  // Records carry the numbers of their nodes as entries.
  int32_t Add(std::string_view name, int32_t parent) {
    GraphNode node;
    node.name = name;
    node.parent = parent;
    node.entry = static_cast<int32_t>(nodes_.size());
    nodes_.push_back(node);
    if (parent >= 0) nodes_[static_cast<size_t>(parent)].children.push_back(node.entry);
    return node.entry;
  }
  CallEdges With(std::vector<TensorFlow> flows) { return CallEdges(StepGraph::Of(nodes_, 1), flows); }

  std::vector<GraphNode> nodes_;
  const int32_t root_ = Add("root", -1);
  const int32_t attention_ = Add("attention", root_);
  const int32_t query_ = Add("query", attention_), key_ = Add("key", attention_), product_ = Add("product", attention_);
  const int32_t mlp_ = Add("mlp", root_);
  const int32_t up_ = Add("up", mlp_);
};

TEST_F(CallEdgesTest, WithoutFlowsCallsFollowEachOther) {
  const CallEdges edges = With({});
  EXPECT_THAT(edges.In(root_), ElementsAre(Edge{0, 1, false}));
  EXPECT_THAT(edges.In(attention_), ElementsAre(Edge{0, 1, false}, Edge{1, 2, false}));
  EXPECT_THAT(edges.In(up_), IsEmpty());
  EXPECT_FALSE(edges.has_data());
}

TEST_F(CallEdgesTest, DataJoinsCallsAndTheModulesAroundThem) {
  const CallEdges edges = With({{query_, product_}, {key_, product_}, {key_, product_}, {product_, up_}});
  EXPECT_THAT(edges.In(root_), ElementsAre(Edge{0, 1, true}));
  EXPECT_THAT(edges.In(attention_), ElementsAre(Edge{0, 1, false}, Edge{0, 2, true}, Edge{1, 2, true}));
  EXPECT_TRUE(edges.has_data());
}

TEST_F(CallEdgesTest, ARecordThatHoldsTheOtherGivesNoEdge) {
  const CallEdges edges = With({{attention_, query_}, {product_, attention_}, {query_, query_}, {99, up_}, {-1, up_}});
  EXPECT_THAT(edges.In(attention_), ElementsAre(Edge{0, 1, false}, Edge{1, 2, false}));
  EXPECT_FALSE(edges.has_data());
}

TEST(FlowsOfTest, RowsThatNameTheirProducersAreFlows) {
  StepTable table;
  table.entries = {{.name = "a", .parent = "", .first_row = 0, .rows = 2},
                   {.name = "b", .parent = "", .first_row = 2, .rows = 2}};
  table.rows.resize(4);
  EXPECT_THAT(FlowsOf(table), IsEmpty());
  table.rows[0].edge = EdgeKind::kOutside;
  table.rows[3].edge = EdgeKind::kView;
  table.rows[3].producer = 1;
  const std::vector<TensorFlow> flows = FlowsOf(table);
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0].producer, 0);
  EXPECT_EQ(flows[0].consumer, 1);
}

}  // namespace
}  // namespace msprobe::server
