#include "agent/stats/tensor_view.h"

#include <gtest/gtest.h>

#include <vector>

namespace msprobe::stats {
namespace {

TensorView View(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  TensorView view;
  view.dtype = DType::kFloat32;
  view.sizes = sizes;
  view.strides = strides;
  return view;
}

bool Contiguous(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  return View(sizes, strides).is_contiguous();
}

TEST(ElementSizeTest, KnowsEveryWidth) {
  EXPECT_EQ(ElementSize(DType::kFloat4E2M1FNX2), 1u);
  EXPECT_EQ(ElementSize(DType::kBFloat16), 2u);
  EXPECT_EQ(ElementSize(DType::kComplex32), 4u);
  EXPECT_EQ(ElementSize(DType::kUInt64), 8u);
  EXPECT_EQ(ElementSize(DType::kComplex128), 16u);
  EXPECT_EQ(ElementSize(DType::kQInt32), 4u);
  EXPECT_EQ(ElementSize(DType::kOther), 0u);
  EXPECT_EQ(ElementSize(DType::kUnspecified), 0u);
}

TEST(TensorViewTest, ScalarHasOneElement) {
  const TensorView scalar = View({}, {});
  EXPECT_EQ(scalar.element_count(), 1);
  EXPECT_TRUE(scalar.is_contiguous());
}

TEST(TensorViewTest, AnySizeZeroIsEmptyAndContiguous) {
  const std::vector<int64_t> sizes = {3, 0, 5}, strides = {7, 1, 2};
  EXPECT_EQ(View(sizes, strides).element_count(), 0);
  EXPECT_TRUE(View(sizes, strides).is_contiguous());
}

TEST(TensorViewTest, ContiguousMeansRowMajorWithSizesOfOneIgnored) {
  EXPECT_TRUE(Contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(Contiguous({2, 1, 3}, {3, 99, 1}));
  EXPECT_FALSE(Contiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(Contiguous({2, 3}, {0, 1}));
  EXPECT_FALSE(Contiguous({4}, {-1}));
  EXPECT_FALSE(Contiguous({4}, {2}));
}

}  // namespace
}  // namespace msprobe::stats
