#include "agent/stats/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "agent/stats/statistics.h"

namespace msprobe::stats {
namespace {

template <typename Element>
Distribution Of(const std::vector<Element>& elements, DType dtype) {
  const auto size = static_cast<int64_t>(elements.size());
  const int64_t stride = 1;
  Distribution distribution;
  ComputeStatistics(
      {.data = elements.data(), .dtype = dtype, .sizes = std::span(&size, 1), .strides = std::span(&stride, 1)},
      nullptr, {.distribution = &distribution});
  return distribution;
}

// By definition, in two passes.
double KurtosisOf(const std::vector<float>& elements) {
  double mean = 0, variance = 0, fourth = 0;
  for (const float x : elements) mean += x;
  mean /= static_cast<double>(elements.size());
  for (const float x : elements) variance += std::pow(x - mean, 2), fourth += std::pow(x - mean, 4);
  const double n = static_cast<double>(elements.size());
  return fourth / n / std::pow(variance / n, 2);
}

TEST(DistributionTest, KurtosisIsThatOfTheDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> elements(100'003);
  for (float& x : elements) x = normal(random);
  EXPECT_NEAR(Of(elements, DType::kFloat32).kurtosis, 3, 0.1);
  EXPECT_NEAR(Of(elements, DType::kFloat32).kurtosis, KurtosisOf(elements), 1e-9);
  elements[7] = 500;
  EXPECT_NEAR(Of(elements, DType::kFloat32).kurtosis / KurtosisOf(elements), 1, 1e-9);
  for (float& x : elements) x += 1e4F;  // a mean that cancels
  EXPECT_NEAR(Of(elements, DType::kFloat32).kurtosis / KurtosisOf(elements), 1, 1e-6);
}

TEST(DistributionTest, CountsWhatANarrowerFormatWouldLose) {
  const std::vector<float> elements = {0, -0.0F, 1, 0x1p-6F, -0x1p-7F, 0x1p-14F, 0x1p-15F, 0x1p-126F, -0x1p-127F};
  const Distribution of = Of(elements, DType::kFloat32);
  EXPECT_EQ(of.finite, 9U);
  EXPECT_EQ(of.underflows, (std::array<uint64_t, 4>{1, 3, 5, 3}));
}

TEST(DistributionTest, WhatIsNotFiniteIsLeftOut) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Distribution of = Of(std::vector<double>{1, kInfinity, std::nan(""), -1, -kInfinity, 3}, DType::kFloat64);
  EXPECT_EQ(of.finite, 3U);
  EXPECT_NEAR(of.kurtosis, 1.5, 1e-12);
  EXPECT_TRUE(std::isnan(Of(std::vector<float>{2, 2, 2}, DType::kFloat32).kurtosis)) << "all are equal";
}

TEST(DistributionTest, OtherDtypesHaveTheirElementsDecodedOrNone) {
  EXPECT_EQ(Of(std::vector<uint16_t>{0x0001, 0x3c00}, DType::kFloat16).underflows[1], 1U);
  EXPECT_EQ(Of(std::vector<uint8_t>{0x01, 0x38, 0x00}, DType::kFloat8E4M3FN).underflows[2], 1U);
  EXPECT_EQ(Of(std::vector<int32_t>{1, 2}, DType::kInt32).finite, 0U);
}

}  // namespace
}  // namespace msprobe::stats
