#include "server/analysis/check/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace msprobe::server {
namespace {

absl::StatusOr<AccuracyComparison> Compare(v1::DType target, v1::DType golden) {
  TensorDescription a;
  TensorDescription b;
  a.dtype = target;
  b.dtype = golden;
  return AccuracyComparison::Start(a, b);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename A, typename B>
Accuracy Measure(v1::DType target, const std::vector<A>& a, v1::DType golden, const std::vector<B>& b,
                 size_t chunk = SIZE_MAX) {
  auto comparison = Compare(target, golden);
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  const size_t elements = a.size() * sizeof(A) / comparison->target_size();
  const char* from_a = reinterpret_cast<const char*>(a.data());
  const char* from_b = reinterpret_cast<const char*>(b.data());
  for (size_t at = 0; at < elements; at += chunk) {
    const size_t count = std::min(chunk, elements - at);
    comparison->Add(from_a + at * comparison->target_size(), from_b + at * comparison->golden_size(), count);
    if (chunk == SIZE_MAX) break;
  }
  return comparison->Finish();
}

Accuracy Measure(const std::vector<float>& a, const std::vector<double>& b, size_t chunk = SIZE_MAX) {
  return Measure(v1::DTYPE_FLOAT32, a, v1::DTYPE_FLOAT64, b, chunk);
}

// Written down element by element, as docs/checking.md defines the numbers.
struct Naive {
  double max_abs = 0, sum_abs = 0, squares = 0, max_rel = 0, sum_rel = 0, mare = 0, sum_cann = 0, ulp_max = 0, ulp = 0;
  uint64_t nonzero = 0, higher = 0, lower = 0, over_one = 0, over_limit = 0, small = 0, small_over = 0, normal_over = 0;
  uint64_t over_torch = 0, under_thousandth = 0, over_accumulative = 0;
  double normal_rel = 0, normal_squares = 0;
};

Naive MeasureNaively(const std::vector<float>& a, const std::vector<double>& b) {
  Naive n;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = a[i] - b[i];
    const double e = std::fabs(d);
    const double y = std::fabs(b[i]);
    n.max_abs = std::max(n.max_abs, e);
    n.sum_abs += e;
    n.squares += e * e;
    if (y > 0) {
      ++n.nonzero;
      n.max_rel = std::max(n.max_rel, e / y);
      n.sum_rel += e / y;
    }
    n.mare = std::max(n.mare, e / (y + 1e-7));
    n.sum_cann += e / (y + 1e-7);
    const int exponent = y == 0 ? -126 : std::max(std::ilogb(y), -126);
    const double steps = std::ldexp(d, 23 - exponent);
    n.ulp_max = std::max(n.ulp_max, std::fabs(steps));
    n.ulp += std::fabs(steps);
    n.higher += steps > 0.5;
    n.lower += steps < -0.5;
    n.over_one += std::fabs(steps) > 1;
    n.over_limit += std::fabs(steps) > 32;
    n.under_thousandth += e < 1e-3 * y || e == 0;
    if (y <= std::ldexp(1, -20)) {
      ++n.small;
      n.small_over += e > std::ldexp(1, -30);
    } else {
      const double rel = e / (y + std::ldexp(1, -52));
      n.normal_rel += rel;
      n.normal_squares += e * e;
      n.normal_over += rel > std::ldexp(1, -20);
    }
    n.over_torch += e > 1e-5 + 1.3e-6 * y;
    n.over_accumulative += e > std::ldexp(1, -11) * std::max(y, 1.0);
  }
  return n;
}

TEST(AccuracyTest, EveryNumberIsAsDefined) {
  std::mt19937 draw(7);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> exponent(-30, 12);
  std::vector<float> a;
  std::vector<double> b;
  for (int i = 0; i < 10'007; ++i) {
    b.push_back(i % 97 == 0 ? 0 : normal(draw) * std::exp2(exponent(draw)));
    const double noise = i % 3 == 0 ? 1e-9 : i % 3 == 1 ? 1e-5 : 0;
    a.push_back(static_cast<float>(b.back() * (1 + noise * normal(draw)) + (i % 11 == 0 ? 1e-8 * normal(draw) : 0)));
  }
  const Naive n = MeasureNaively(a, b);
  for (size_t chunk : {SIZE_MAX, size_t{1}, size_t{513}}) {
    const Accuracy got = Measure(a, b, chunk);
    const auto count = static_cast<double>(a.size());
    EXPECT_EQ(got.elements, a.size());
    EXPECT_EQ(got.absolute.max, n.max_abs);
    EXPECT_NEAR(got.absolute.mean, n.sum_abs / count, 1e-12 * n.sum_abs);
    EXPECT_NEAR(got.absolute.rms, std::sqrt(n.squares / count), 1e-12 * std::sqrt(n.squares));
    EXPECT_DOUBLE_EQ(got.relative.max, n.max_rel);
    EXPECT_NEAR(got.relative.mean, n.sum_rel / static_cast<double>(n.nonzero), 1e-12 * n.sum_rel);
    EXPECT_DOUBLE_EQ(got.mare, n.mare);
    EXPECT_NEAR(got.mere, n.sum_cann / count, 1e-12 * n.sum_cann);
    EXPECT_EQ(got.ulp.max, n.ulp_max);
    EXPECT_NEAR(got.ulp.mean, n.ulp / count, 1e-12 * n.ulp);
    EXPECT_EQ(got.higher, n.higher);
    EXPECT_EQ(got.lower, n.lower);
    EXPECT_EQ(got.different, n.higher + n.lower);
    EXPECT_EQ(got.ulp.over_one, n.over_one);
    EXPECT_EQ(got.ulp.over_limit, n.over_limit);
    EXPECT_EQ(got.split.small, n.small);
    EXPECT_EQ(got.split.small_over_threshold, n.small_over);
    EXPECT_EQ(got.split.normal_over, n.normal_over);
    EXPECT_NEAR(got.split.normal_mean_rel * static_cast<double>(got.split.normal), n.normal_rel, 1e-12 * n.normal_rel);
    EXPECT_NEAR(got.split.normal_squares, n.normal_squares, 1e-12 * n.normal_squares);
    EXPECT_EQ(got.split.over_accumulative, n.over_accumulative);
    EXPECT_EQ(got.over_torch, n.over_torch);
    EXPECT_DOUBLE_EQ(got.relative.share_under[2], static_cast<double>(n.under_thousandth) / count);
  }
}

TEST(AccuracyTest, NonFiniteElementsAreCountedByKindAndLeftOut) {
  const std::vector<double> b = {1, kNan, kInf, -kInf, 2, kInf, kNan};
  const std::vector<float> a = {1,
                                std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(),
                                5,
                                3};
  const Accuracy got = Measure(a, b);
  EXPECT_EQ(got.compared, 1);
  EXPECT_EQ(got.non_finite.same, 2);
  EXPECT_EQ(got.non_finite.inf_sign, 1);
  EXPECT_EQ(got.non_finite.nan, 2);
  EXPECT_EQ(got.non_finite.inf, 1);
  EXPECT_EQ(got.non_finite.first_mismatch, 3);
  EXPECT_EQ(got.worst.index, 3);
  EXPECT_EQ(got.absolute.max, 0);
}

TEST(AccuracyTest, WhatTheDtypeCannotHoldIsInfiniteInIt) {
  // float16's largest number is 65504; 65520 and more round to infinity.
  const std::vector<uint16_t> a = {0x7C00, 0x7BFF, 0x7C00, 0x7BFF, 0x3C00, 0xFC00};
  const std::vector<double> b = {70000, 65519, 65510, 65521, 70000, 70000};
  const Accuracy got = Measure(v1::DTYPE_FLOAT16, a, v1::DTYPE_FLOAT64, b);
  EXPECT_EQ(got.non_finite.same, 3);  // 70000; near the limit either is right
  EXPECT_EQ(got.compared, 1);
  EXPECT_EQ(got.non_finite.inf, 2);
  EXPECT_EQ(got.non_finite.first_mismatch, 4);
}

TEST(AccuracyTest, Integers) {
  const std::vector<int8_t> a = {127, 1, -3};
  const std::vector<int8_t> b = {-128, 1, -3};
  const Accuracy small = Measure(v1::DTYPE_INT8, a, v1::DTYPE_INT8, b);
  EXPECT_EQ(small.different, 1);
  EXPECT_EQ(small.absolute.max, 255);
  const std::vector<int64_t> c = {(int64_t{1} << 60) + 1, -5};
  const std::vector<int64_t> d = {int64_t{1} << 60, -5};
  const Accuracy wide = Measure(v1::DTYPE_INT64, c, v1::DTYPE_INT64, d);
  EXPECT_EQ(wide.different, 1);
  EXPECT_EQ(wide.absolute.max, 1);
  const std::vector<uint8_t> e = {1, 0, 1};
  const std::vector<uint8_t> f = {1, 0, 0};
  EXPECT_EQ(Measure(v1::DTYPE_BOOL, e, v1::DTYPE_BOOL, f).different, 1);
}

TEST(AccuracyTest, Float8IsReadWithItsSubnormals) {
  // float8_e4m3fn: 0x01 is 2^-9, 0x7F is NaN, 0x7E is 448. float8_e5m2: 0x7C is infinite, 0x01 is 2^-16.
  const std::vector<uint8_t> a = {0x01, 0x7F, 0x7E, 0x38};
  const std::vector<double> b = {0x1p-9, kNan, 448, 1};
  const Accuracy e4m3 = Measure(v1::DTYPE_FLOAT8_E4M3FN, a, v1::DTYPE_FLOAT64, b);
  EXPECT_EQ(e4m3.different, 0);
  EXPECT_EQ(e4m3.non_finite.same, 1);
  const std::vector<uint8_t> c = {0x01, 0x7C, 0x3C};
  const std::vector<double> d = {0x1p-16, kInf, 1.25};
  const Accuracy e5m2 = Measure(v1::DTYPE_FLOAT8_E5M2, c, v1::DTYPE_FLOAT64, d);
  EXPECT_EQ(e5m2.non_finite.same, 1);
  EXPECT_EQ(e5m2.different, 1);
  EXPECT_EQ(e5m2.ulp.max, 1);
}

TEST(AccuracyTest, ComplexElementsAreTwoNumbersEach) {
  const std::vector<float> a = {1, 2, 3, 4.5F};
  const std::vector<double> b = {1, 2, 3, 4};
  const Accuracy got = Measure(v1::DTYPE_COMPLEX64, a, v1::DTYPE_COMPLEX128, b);
  EXPECT_EQ(got.elements, 4);
  EXPECT_EQ(got.absolute.max, 0.5);
  EXPECT_TRUE(absl::IsUnimplemented(Compare(v1::DTYPE_COMPLEX64, v1::DTYPE_FLOAT64).status()));
}

TEST(AccuracyTest, TheNeighbourUnderAPowerOfTwoIsDifferent) {
  const Accuracy got = Measure({std::nextafter(1.0F, 0.0F), std::nextafter(-2.0F, 0.0F), 1.0F}, {1, -2, 1 + 0x1p-24});
  EXPECT_EQ(got.ulp.max, 0.5);
  EXPECT_EQ(got.lower, 1);
  EXPECT_EQ(got.higher, 1);
  EXPECT_EQ(got.different, 2);  // the third is a golden number rounded
}

TEST(AccuracyTest, Percentiles) {
  std::vector<float> a;
  std::vector<double> b(10'000, 0.0);
  for (int i = 0; i < 10'000; ++i) a.push_back(i < 9'980 ? 1 : 1000);
  const Accuracy got = Measure(a, b);
  EXPECT_THAT(got.absolute.percentiles[2], testing::DoubleNear(1, 0.04));
  EXPECT_THAT(got.absolute.percentiles[3], testing::DoubleNear(1000, 40));
}

// Errors of a block count while the next one is summed, whatever that one is.
TEST(AccuracyTest, PercentilesOfBlocksOfAllKinds) {
  enum class Kind { kErrors, kEqual, kZeros, kNan };
  std::vector<float> a;
  std::vector<double> b;
  std::vector<double> errors;
  std::mt19937 draw(1);
  for (int block = 0; block < 64; ++block) {
    const auto kind = static_cast<Kind>(draw() % 4);
    for (int i = 0; i < 512; ++i) {
      b.push_back(kind == Kind::kZeros && i % 2 == 0 ? 0 : 1024);
      a.push_back(static_cast<float>(b.back()));
      if (kind != Kind::kEqual) a.back() += static_cast<float>(1 + draw() % 1000);
      if (kind == Kind::kNan && i == 7) a.back() = std::nanf("");
      if (!std::isnan(a.back())) errors.push_back(a.back() - b.back());
    }
  }
  std::sort(errors.begin(), errors.end());
  for (const size_t chunk : {SIZE_MAX, size_t{512}, size_t{700}}) {
    const Accuracy got = Measure(a, b, chunk);
    for (size_t i = 0; i < got.absolute.percentiles.size(); ++i) {
      const auto rank = static_cast<size_t>(
          std::ceil(AbsoluteErrors::kPercentiles[i] / 100 * static_cast<double>(errors.size()) * (1 - 1e-12)));
      const double expected = errors[rank - 1];
      EXPECT_THAT(got.absolute.percentiles[i], testing::DoubleNear(expected, expected / 32)) << chunk << " " << i;
    }
  }
}

TEST(AccuracyTest, NothingIsEqual) {
  const Accuracy got = Measure({}, {});
  EXPECT_EQ(got.elements, 0);
  EXPECT_EQ(got.cosine, 1);
  EXPECT_EQ(got.error_balance(), 0);
}

}  // namespace
}  // namespace msprobe::server
