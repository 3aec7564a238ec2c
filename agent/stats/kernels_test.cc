#include "agent/stats/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace msprobe::stats {
namespace {

void ExpectNear(double actual, double expected, double scale) {
  if (std::isinf(expected)) {
    EXPECT_EQ(actual, expected);
  } else {
    EXPECT_NEAR(actual, expected, 1e-13 * scale);
  }
}

void ExpectSameSums(const FloatSums& actual, const FloatSums& expected) {
  ExpectNear(actual.squares, expected.squares, expected.squares);
  ExpectNear(actual.sum, expected.sum, std::sqrt(expected.squares * 65536));
  EXPECT_EQ(actual.max, expected.max);
  EXPECT_EQ(actual.min, expected.min);
  EXPECT_EQ(actual.zeros, expected.zeros);
  EXPECT_EQ(actual.nans, expected.nans);
  EXPECT_EQ(actual.positive_infs, expected.positive_infs);
  EXPECT_EQ(actual.negative_infs, expected.negative_infs);
}

template <typename Element>
void CompareFloats(FloatKernels<Element> Kernels::*member, const Kernels& level, Element special_exponent) {
  std::mt19937_64 random(3);
  for (size_t n : {1u, 3u, 4u, 7u, 8u, 15u, 16u, 17u, 31u, 32u, 33u, 100u, 1027u, 4000u}) {
    SCOPED_TRACE(n);
    std::vector<Element> any(n), finite(n);
    for (size_t i = 0; i < n; ++i) {
      any[i] = static_cast<Element>(random());
      // Half the exponent's range, so that squares of doubles are finite; some zeros of both signs.
      finite[i] = static_cast<Element>(any[i] & ~(special_exponent & (special_exponent >> 1)));
      if (random() % 8 == 0) finite[i] = static_cast<Element>(finite[i] & ~(static_cast<Element>(~Element{0}) >> 1));
      if (random() % 4 == 0) any[i] = static_cast<Element>(any[i] | special_exponent);
      if (random() % 8 == 0) any[i] = static_cast<Element>(any[i] & ~(static_cast<Element>(~Element{0}) >> 1));
      if (sizeof(Element) == 8 && (any[i] & special_exponent) != special_exponent) any[i] = finite[i];
    }
    FloatSums expected, actual;
    (kPortableKernels.*member).fast(finite.data(), n, &expected);
    (level.*member).fast(finite.data(), n, &actual);
    ExpectSameSums(actual, expected);
    (kPortableKernels.*member).careful(any.data(), n, &expected);
    (level.*member).careful(any.data(), n, &actual);
    ExpectSameSums(actual, expected);

    const bool special = expected.nans + expected.positive_infs + expected.negative_infs != 0;
    (level.*member).fast(any.data(), n, &actual);
    EXPECT_EQ(!std::isfinite(actual.squares), special) << "the fast kernel tells that an element is not finite";

    EXPECT_TRUE((level.*member).contains(finite.data(), n, finite[n / 2]));
    EXPECT_TRUE((level.*member).contains(finite.data(), n, finite[n - 1]));
    EXPECT_FALSE((level.*member).contains(finite.data(), n, static_cast<Element>(special_exponent | 1)));
  }
}

template <typename Element>
void CompareIntegers(void (*Kernels::*member)(const Element*, size_t, IntegerSums*), const Kernels& level) {
  std::mt19937_64 random(3);
  for (size_t n : {1u, 2u, 3u, 15u, 16u, 17u, 63u, 64u, 65u, 127u, 128u, 129u, 1000u, 4096u}) {
    SCOPED_TRACE(n);
    std::vector<Element> elements(n);
    for (Element& element : elements) element = random() % 5 == 0 ? Element{0} : static_cast<Element>(random());
    IntegerSums actual;
    (level.*member)(elements.data(), n, &actual);
    __int128 sum = 0;
    long double squares = 0;
    uint64_t zeros = 0;
    Element max = elements[0], min = elements[0];
    for (Element element : elements) {
      sum += element;
      squares += static_cast<long double>(element) * static_cast<long double>(element);
      zeros += element == 0;
      max = std::max(max, element);
      min = std::min(min, element);
    }
    EXPECT_TRUE(actual.sum == sum);
    EXPECT_NEAR(actual.squares, static_cast<double>(squares), 1e-13 * static_cast<double>(squares));
    EXPECT_EQ(actual.zeros, zeros);
    EXPECT_EQ(static_cast<Element>(actual.max), max);
    EXPECT_EQ(static_cast<Element>(actual.min), min);
  }
}

class EveryLevel : public testing::TestWithParam<const Kernels*> {};

TEST_P(EveryLevel, FloatsAgreeWithThePortableKernels) {
  CompareFloats<uint64_t>(&Kernels::float64, *GetParam(), 0x7ff0000000000000u);
  CompareFloats<uint32_t>(&Kernels::float32, *GetParam(), 0x7f800000u);
  CompareFloats<uint16_t>(&Kernels::float16, *GetParam(), 0x7c00u);
  CompareFloats<uint16_t>(&Kernels::bfloat16, *GetParam(), 0x7f80u);
}

TEST_P(EveryLevel, IntegersAreExact) {
  CompareIntegers<int8_t>(&Kernels::int8, *GetParam());
  CompareIntegers<int16_t>(&Kernels::int16, *GetParam());
  CompareIntegers<int32_t>(&Kernels::int32, *GetParam());
  CompareIntegers<int64_t>(&Kernels::int64, *GetParam());
  CompareIntegers<uint8_t>(&Kernels::uint8, *GetParam());
  CompareIntegers<uint16_t>(&Kernels::uint16, *GetParam());
  CompareIntegers<uint32_t>(&Kernels::uint32, *GetParam());
  CompareIntegers<uint64_t>(&Kernels::uint64, *GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryLevel, testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(KernelsTest, TheBestLevelIsTheLastSupported) {
  EXPECT_EQ(SupportedKernels().front(), &kPortableKernels);
  EXPECT_EQ(&BestKernels(), SupportedKernels().back());
}

}  // namespace
}  // namespace msprobe::stats
