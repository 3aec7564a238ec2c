#include "agent/stats/layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace msprobe::stats {
namespace {

class LayoutTest : public testing::Test {
 protected:
  LayoutTest() : memory_(20000) { std::iota(memory_.begin(), memory_.end(), 0); }

  TensorView View(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset = 0) {
    sizes_ = std::move(sizes);
    strides_ = std::move(strides);
    TensorView view;
    view.data = memory_.data() + offset;
    view.dtype = DType::kInt32;
    view.sizes = sizes_;
    view.strides = strides_;
    return view;
  }

  struct Runs {
    std::vector<size_t> lengths;
    std::vector<int32_t> elements;
    bool in_place = true;
  };
  Runs Collect(const Layout& layout, size_t limit = 1 << 20) {
    Runs runs;
    layout.ForEachRun(limit, true, [&](const void* from, size_t count) {
      const auto* elements = static_cast<const int32_t*>(from);
      runs.lengths.push_back(count);
      runs.elements.insert(runs.elements.end(), elements, elements + count);
      runs.in_place = runs.in_place && elements >= memory_.data() && elements < memory_.data() + memory_.size();
    });
    return runs;
  }

  std::vector<int32_t> memory_;
  std::vector<int64_t> sizes_, strides_;
};

TEST_F(LayoutTest, ContiguousIsOneRunInPlace) {
  const Runs runs = Collect(Layout(View({10, 20, 30}, {600, 30, 1}), Layout::Order::kRowMajor));
  EXPECT_EQ(runs.lengths, (std::vector<size_t>{6000}));
  EXPECT_TRUE(runs.in_place);
}

TEST_F(LayoutTest, RunsAreCutAtTheLimit) {
  const Runs runs = Collect(Layout(View({1000}, {1}), Layout::Order::kAny), 400 * 4);
  EXPECT_EQ(runs.lengths, (std::vector<size_t>{400, 400, 200}));
}

TEST_F(LayoutTest, TransposedIsContiguousInAnyOrder) {
  const Runs runs = Collect(Layout(View({30, 20, 10}, {1, 30, 600}), Layout::Order::kAny));
  EXPECT_EQ(runs.lengths, (std::vector<size_t>{6000}));
  EXPECT_TRUE(runs.in_place);
}

TEST_F(LayoutTest, ReversedIsContiguousInAnyOrder) {
  const Runs runs = Collect(Layout(View({3, 4}, {-4, -1}, 11), Layout::Order::kAny));
  EXPECT_TRUE(runs.in_place);
  EXPECT_EQ(runs.elements.front(), 0);
  EXPECT_EQ(runs.elements.size(), 12u);
}

TEST_F(LayoutTest, ExpandedIsReadOnceInAnyOrderAndRepeatedInRowMajor) {
  const TensorView view = View({7, 3, 5}, {0, 1, 0});
  const Layout any(view, Layout::Order::kAny);
  EXPECT_EQ(any.repeats(), 35u);
  EXPECT_EQ(Collect(any).elements, (std::vector<int32_t>{0, 1, 2}));
  const Layout row_major(view, Layout::Order::kRowMajor);
  EXPECT_EQ(row_major.repeats(), 1u);
  EXPECT_EQ(Collect(row_major).elements.size(), 105u);
}

TEST_F(LayoutTest, RowMajorOrderOfATransposedView) {
  EXPECT_EQ(Collect(Layout(View({2, 3}, {1, 2}), Layout::Order::kRowMajor)).elements,
            (std::vector<int32_t>{0, 2, 4, 1, 3, 5}));
}

TEST_F(LayoutTest, LongRowsStayInPlaceAndShortRowsAreGathered) {
  EXPECT_TRUE(Collect(Layout(View({4, 1000}, {2000, 1}), Layout::Order::kRowMajor)).in_place);
  const Runs runs = Collect(Layout(View({4, 10}, {2000, 1}), Layout::Order::kRowMajor));
  EXPECT_FALSE(runs.in_place);
  EXPECT_EQ(runs.lengths, (std::vector<size_t>{40}));
}

TEST_F(LayoutTest, EmptyHasNoRun) {
  EXPECT_TRUE(Collect(Layout(View({4, 0}, {1, 1}), Layout::Order::kAny)).lengths.empty());
}

}  // namespace
}  // namespace msprobe::stats
