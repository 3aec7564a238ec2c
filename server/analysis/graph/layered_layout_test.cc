#include "server/analysis/graph/layered_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace msprobe::server {
namespace {

using Edges = std::vector<LayeredLayout::Edge>;
using Sizes = std::vector<LayeredLayout::Size>;

constexpr LayeredLayout::Spacing kSpacing;
constexpr float kWide = 100, kHigh = 30;

LayeredLayout Of(size_t vertices, const Edges& edges) {
  return LayOut(Sizes(vertices, {kWide, kHigh}), edges, kSpacing);
}
float Middle(const LayeredLayout& layout, size_t vertex) { return layout.corners[vertex].x + kWide / 2; }

TEST(LayeredLayoutTest, AChainIsAStraightColumn) {
  const LayeredLayout layout = Of(3, {{0, 1}, {1, 2}});
  EXPECT_EQ(layout.size.wide, kWide);
  EXPECT_EQ(layout.size.high, 3 * kHigh + 2 * kSpacing.between);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(layout.corners[i].x, 0);
    EXPECT_EQ(layout.corners[i].y, static_cast<float>(i) * (kHigh + kSpacing.between));
  }
  EXPECT_TRUE(layout.bends.empty());
}

TEST(LayeredLayoutTest, WhatDependsOnOneAndFeedsOneStandsSideBySideAroundTheirMiddle) {
  const LayeredLayout layout = Of(5, {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {2, 4}, {3, 4}});
  EXPECT_EQ(layout.corners[1].y, layout.corners[3].y);
  EXPECT_NEAR(Middle(layout, 0), Middle(layout, 2), 0.5);
  EXPECT_NEAR(Middle(layout, 4), Middle(layout, 2), 0.5);
  EXPECT_GE(layout.corners[2].x, layout.corners[1].x + kWide + kSpacing.beside - 0.01F);
}

TEST(LayeredLayoutTest, ACrossingIsUndone) {
  const LayeredLayout layout = Of(4, {{0, 3}, {1, 2}});  // 2 below 1, and 3 below 0
  EXPECT_LT(layout.corners[0].x, layout.corners[1].x);
  EXPECT_LT(layout.corners[3].x, layout.corners[2].x);
}

TEST(LayeredLayoutTest, AnEdgeOverALayerRunsBesideWhatStandsThere) {
  const LayeredLayout layout = Of(3, {{0, 1}, {1, 2}, {0, 2}});
  const auto bends = layout.BendsOf(2);
  ASSERT_EQ(bends.size(), 2);
  EXPECT_TRUE(bends[0].x <= layout.corners[1].x || bends[0].x >= layout.corners[1].x + kWide) << bends[0].x;
  EXPECT_EQ(bends[0].y, layout.corners[1].y);
  EXPECT_EQ(bends[1].y, layout.corners[1].y + kHigh);
}

TEST(LayeredLayoutTest, ALongEdgeGoesAround) {
  Edges edges = {{0, 19}};
  for (uint32_t i = 1; i < 20; ++i) edges.push_back({i - 1, i});
  const LayeredLayout layout = Of(20, edges);
  ASSERT_EQ(layout.BendsOf(0).size(), 2);
  EXPECT_GT(layout.BendsOf(0)[0].x, kWide);
  EXPECT_LE(layout.BendsOf(0)[0].x, layout.size.wide);
}

TEST(LayeredLayoutTest, NothingOneVertexAndEdgesBackwards) {
  EXPECT_TRUE(Of(0, {}).corners.empty());
  EXPECT_EQ(Of(1, {{0, 0}}).size.high, kHigh);
  const LayeredLayout layout = Of(2, {{1, 0}, {0, 1}});
  EXPECT_LT(layout.corners[0].y, layout.corners[1].y);
}

TEST(LayeredLayoutTest, NoTwoVerticesOverlapWhateverTheEdges) {
  std::mt19937 random(7);
  Edges edges;
  Sizes sizes;
  for (uint32_t i = 0; i < 400; ++i) {
    sizes.push_back({20.0F + static_cast<float>(random() % 200), 20.0F + static_cast<float>(random() % 90)});
    for (int j = 0; i > 0 && j < 2; ++j) edges.push_back({static_cast<uint32_t>(random() % i), i});
  }
  const LayeredLayout layout = LayOut(sizes, edges, kSpacing);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto& [x, y] = layout.corners[i];
    EXPECT_GE(x, -0.01F);
    EXPECT_LE(x + sizes[i].wide, layout.size.wide + 0.5F);
    for (size_t j = 0; j < i; ++j) {
      const auto& [left, top] = layout.corners[j];
      EXPECT_TRUE(x >= left + sizes[j].wide || left >= x + sizes[i].wide || y >= top + sizes[j].high ||
                  top >= y + sizes[i].high)
          << i << " and " << j;
    }
  }
  for (const LayeredLayout::Edge& edge : edges) {
    EXPECT_GE(layout.corners[edge.to].y, layout.corners[edge.from].y + sizes[edge.from].high);
  }
}

}  // namespace
}  // namespace msprobe::server
