#include "server/analysis/tensor/tensor_preview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/analysis/table/memory_table.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename T>
absl::StatusOr<TensorPreview> Preview(v1::DType dtype, const std::vector<T>& elements, PreviewOptions options = {}) {
  TensorDescription description;
  description.dtype = dtype;
  description.shape = {static_cast<int64_t>(elements.size() * sizeof(T) / DTypeSize(dtype))};
  return PreviewOf([&] { return std::make_unique<MemoryTensor>(description, BytesOf(elements)); }, options);
}

std::vector<double> ValuesOf(const std::vector<TensorPreview::Element>& elements) {
  std::vector<double> values;
  for (const auto& element : elements) values.push_back(element.value.number());
  return values;
}

std::vector<uint64_t> IndexesOf(const std::vector<TensorPreview::Element>& elements) {
  std::vector<uint64_t> indexes;
  for (const auto& element : elements) indexes.push_back(element.index);
  return indexes;
}

TEST(TensorPreviewTest, StatisticsAreThoseOfTheFiniteElements) {
  const auto preview = Preview<double>(v1::DTYPE_FLOAT64, {1, kNaN, -3, kInf, 0, -kInf, -kInf, 4});
  ASSERT_TRUE(preview.ok()) << preview.status();
  EXPECT_EQ(preview->elements, 8u);
  EXPECT_EQ(preview->finite, 4u);
  EXPECT_EQ(preview->nan_count, 1u);
  EXPECT_EQ(preview->positive_inf_count, 1u);
  EXPECT_EQ(preview->negative_inf_count, 2u);
  EXPECT_EQ(preview->zero_count, 1u);
  EXPECT_EQ(preview->max.number(), 4);
  EXPECT_EQ(preview->min.number(), -3);
  EXPECT_EQ(preview->mean, 0.5);
  EXPECT_DOUBLE_EQ(preview->norm, std::sqrt(26.0));
  EXPECT_DOUBLE_EQ(preview->std, 2.5);
  EXPECT_THAT(IndexesOf(preview->first_non_finite), ElementsAre(1, 3, 5, 6));
}

TEST(TensorPreviewTest, BinsAreOfEqualWidthAndTheLastOneHoldsTheLargest) {
  const auto preview = Preview<float>(v1::DTYPE_FLOAT32, {0, 1, 2, 3, 4, 4, 8}, {.bins = 4, .top = 2});
  ASSERT_TRUE(preview.ok()) << preview.status();
  EXPECT_THAT(preview->bin_edges, ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(preview->bin_counts, ElementsAre(2, 2, 2, 1));
}

TEST(TensorPreviewTest, OfEqualElementsTheFirstStandFirst) {
  const auto preview = Preview<int32_t>(v1::DTYPE_INT32, {7, 1, 7, 7, 1, -2}, {.bins = 4, .top = 2});
  ASSERT_TRUE(preview.ok()) << preview.status();
  EXPECT_THAT(IndexesOf(preview->largest), ElementsAre(0, 2));
  EXPECT_THAT(IndexesOf(preview->smallest), ElementsAre(5, 1));
  EXPECT_THAT(ValuesOf(preview->smallest), ElementsAre(-2, 1));
}

TEST(TensorPreviewTest, IntegersThatNoDoubleTellsApartAreInOrder) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const auto wide = Preview<uint64_t>(v1::DTYPE_UINT64, {kMost - 1, 3, kMost, kMost - 2});
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_TRUE(wide->max.kind == Cell::Kind::kUnsigned && wide->max.unsigned_integer == kMost);
  EXPECT_TRUE(wide->min.kind == Cell::Kind::kInteger && wide->min.integer == 3);
  EXPECT_THAT(IndexesOf(wide->largest), ElementsAre(2, 0, 3, 1));
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const auto negative = Preview<int64_t>(v1::DTYPE_INT64, {kLeast + 1, kLeast, -(int64_t{1} << 53) - 1});
  ASSERT_TRUE(negative.ok()) << negative.status();
  EXPECT_EQ(negative->min.integer, kLeast);
  EXPECT_EQ(negative->max.integer, -(int64_t{1} << 53) - 1);
  EXPECT_THAT(IndexesOf(negative->smallest), ElementsAre(1, 0, 2));
}

TEST(TensorPreviewTest, AnEmptyTensorHasNothing) {
  const auto preview = Preview<float>(v1::DTYPE_FLOAT32, {});
  ASSERT_TRUE(preview.ok()) << preview.status();
  EXPECT_EQ(preview->elements, 0u);
  EXPECT_THAT(preview->largest, IsEmpty());
  EXPECT_THAT(preview->bin_counts, IsEmpty());
}

TEST(TensorPreviewTest, ComplexElementsCountByTheirAbsoluteValue) {
  const auto preview = Preview<float>(v1::DTYPE_COMPLEX64, {3, 4, 0, 0});
  ASSERT_TRUE(preview.ok()) << preview.status();
  EXPECT_EQ(preview->elements, 2u);
  EXPECT_EQ(preview->max.number(), 5);
  EXPECT_EQ(preview->zero_count, 1u);
}

TEST(TensorPreviewTest, ElementsThatChunksCutAreWhole) {
  std::vector<double> elements(3000);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<double>(i);
  const auto preview = Preview(v1::DTYPE_FLOAT64, elements);  // chunks of 7 bytes
  ASSERT_TRUE(preview.ok()) << preview.status();
  EXPECT_EQ(preview->max.number(), 2999);
  EXPECT_EQ(preview->mean, 1499.5);
}

}  // namespace
}  // namespace msprobe::server
