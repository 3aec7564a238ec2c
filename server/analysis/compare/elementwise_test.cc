#include "server/analysis/compare/elementwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace msprobe::server {
namespace {

// A tensor in memory that comes in chunks of any size.
class Chunks : public TensorElements {
 public:
  template <typename T>
  Chunks(v1::DType dtype, const std::vector<T>& values, size_t chunk) : chunk_(chunk) {
    description_.dtype = dtype;
    description_.shape = {static_cast<int64_t>(values.size())};
    content_.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  const TensorDescription& description() const override { return description_; }
  absl::Status Read(ContentVisitor visit) override {
    for (size_t at = 0; at < content_.size(); at += chunk_) {
      if (at >= fail_after_) return absl::DataLossError("broken");
      if (absl::Status status = visit(std::string_view(content_).substr(at, chunk_)); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  void FailAfter(size_t bytes) { fail_after_ = bytes; }

 private:
  TensorDescription description_;
  std::string content_;
  const size_t chunk_;
  size_t fail_after_ = std::numeric_limits<size_t>::max();
};

std::vector<float> Random(size_t count, unsigned seed) {
  std::mt19937 draw(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(draw);
  return values;
}

TEST(ElementwiseTest, ChunksNeedNotMeet) {
  // Over the size from which the golden side is read on a thread of its own, and not a multiple of anything.
  const std::vector<float> a = Random(700'001, 1);
  const std::vector<float> b = Random(700'001, 2);
  Chunks whole_a(v1::DTYPE_FLOAT32, a, a.size() * 4);
  Chunks whole_b(v1::DTYPE_FLOAT32, b, b.size() * 4);
  auto expected = CompareElements(whole_a, whole_b);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(expected->elements, a.size());
  EXPECT_EQ(expected->different, a.size());
  for (const auto& [x, y] : {std::pair(1021, 4099), std::pair(65536, 7), std::pair(3, 1 << 20)}) {
    Chunks target(v1::DTYPE_FLOAT32, a, static_cast<size_t>(x));
    Chunks golden(v1::DTYPE_FLOAT32, b, static_cast<size_t>(y));
    auto metrics = CompareElements(target, golden);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_EQ(metrics->absolute.max, expected->absolute.max);
    EXPECT_EQ(metrics->worst.index, expected->worst.index);
    EXPECT_NEAR(metrics->euclidean, expected->euclidean, 1e-12 * expected->euclidean);
    EXPECT_NEAR(metrics->cosine, expected->cosine, 1e-14);
  }
}

TEST(ElementwiseTest, WhatCannotBeReadIsAnErrorOnEitherSide) {
  const std::vector<float> values = Random(1'000'000, 3);
  for (bool golden_fails : {false, true}) {
    Chunks target(v1::DTYPE_FLOAT32, values, 1 << 16);
    Chunks golden(v1::DTYPE_FLOAT32, values, 1 << 16);
    (golden_fails ? golden : target).FailAfter(1 << 21);
    EXPECT_TRUE(absl::IsDataLoss(CompareElements(target, golden).status()));
  }
}

TEST(ElementwiseTest, NumbersOfElementsMustAgree) {
  for (size_t count : {10u, 1'000'000u}) {
    Chunks target(v1::DTYPE_FLOAT32, Random(count, 1), 1 << 16);
    Chunks golden(v1::DTYPE_FLOAT32, Random(count + 1, 1), 1 << 16);
    EXPECT_TRUE(absl::IsInvalidArgument(CompareElements(target, golden).status()));
    Chunks again(v1::DTYPE_FLOAT32, Random(count, 1), 1 << 16);
    EXPECT_TRUE(absl::IsInvalidArgument(CompareElements(golden, again).status()));
  }
}

TEST(ElementwiseTest, NonFiniteElementsAreCountedAndLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  Chunks target(v1::DTYPE_FLOAT64, std::vector<double>{nan, 1, nan, inf, inf, 2, inf}, 24);
  Chunks golden(v1::DTYPE_FLOAT64, std::vector<double>{nan, nan, 1, inf, -inf, 1, 5}, 56);
  auto metrics = CompareElements(target, golden);
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(metrics->compared, 1u);
  EXPECT_EQ(metrics->non_finite.same, 2u);
  EXPECT_EQ(metrics->non_finite.nan, 2u);
  EXPECT_EQ(metrics->non_finite.inf_sign, 1u);
  EXPECT_EQ(metrics->non_finite.inf, 1u);
  EXPECT_EQ(metrics->non_finite.first_mismatch, 1u);
  EXPECT_EQ(metrics->absolute.max, 1);
  EXPECT_EQ(metrics->worst.index, 5u);
  EXPECT_TRUE(metrics->mindstudio.masks_differ);
}

TEST(ElementwiseTest, LargeIntegersAreExact) {
  const int64_t large = int64_t{1} << 53;
  Chunks target(v1::DTYPE_INT64, std::vector<int64_t>{large + 1, std::numeric_limits<int64_t>::min()}, 16);
  Chunks golden(v1::DTYPE_INT64, std::vector<int64_t>{large, std::numeric_limits<int64_t>::max()}, 16);
  auto metrics = CompareElements(target, golden);
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(metrics->different, 2u);
  EXPECT_EQ(metrics->absolute.max, 0x1p64);
  EXPECT_EQ(metrics->worst.target.integer, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(metrics->worst.golden.integer, std::numeric_limits<int64_t>::max());
  // mindstudio-probe looks at them as doubles.
  EXPECT_EQ(metrics->mindstudio.max_abs, 0x1p64);
}

TEST(ElementwiseTest, ToleranceIsOfTheGoldenElement) {
  Chunks target(v1::DTYPE_FLOAT32, std::vector<float>{1.01f, 10.2f, 0.001f}, 12);
  Chunks golden(v1::DTYPE_FLOAT32, std::vector<float>{1.0f, 10.0f, 0.0f}, 12);
  auto metrics = CompareElements(target, golden, Tolerance{.relative = 0.015, .absolute = 0.002});
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(metrics->over_tolerance, 1u);
  EXPECT_NEAR(metrics->worst_excess, 0.2 / 0.152, 1e-5);
}

TEST(ElementwiseTest, SaysWhichTypesItCannotRead) {
  Chunks target(v1::DTYPE_FLOAT4_E2M1FN_X2, std::vector<uint8_t>{1}, 1);
  EXPECT_TRUE(absl::IsUnimplemented(CompareElements(target, target).status()));
  Chunks complex(v1::DTYPE_COMPLEX64, std::vector<float>{1, 2}, 8);
  Chunks real(v1::DTYPE_FLOAT32, std::vector<float>{1}, 4);
  EXPECT_TRUE(absl::IsUnimplemented(CompareElements(complex, real).status()));
}

}  // namespace
}  // namespace msprobe::server
