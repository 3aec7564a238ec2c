#include "server/analysis/check/accuracy_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace msprobe::server {
namespace {

struct Block {
  std::vector<float> output = std::vector<float>(kAccuracyBlock);
  std::vector<double> golden = std::vector<double>(kAccuracyBlock);

  const char* from_a() const { return reinterpret_cast<const char*>(output.data()); }
  const char* from_b() const { return reinterpret_cast<const char*>(golden.data()); }
};

// Errors of many sizes; with zeros, small values and powers of two where `mixed`.
Block Drawn(bool mixed, unsigned seed) {
  std::mt19937 draw(seed);
  std::normal_distribution<double> normal;
  Block block;
  for (size_t i = 0; i < kAccuracyBlock; ++i) {
    block.golden[i] = normal(draw) + (mixed ? 0 : 10);
    if (mixed && i % 7 == 0) block.golden[i] = 0;
    if (mixed && i % 7 == 1) block.golden[i] *= 1e-7;
    if (mixed && i % 7 == 2) block.golden[i] = std::ldexp(1.0, static_cast<int>(i % 11) - 5);
    const double error = i % 3 == 0 ? 0 : std::pow(10.0, -2.0 - static_cast<double>(i % 7)) * normal(draw);
    block.output[i] = static_cast<float>(block.golden[i] * (1 + error) + (mixed && i % 5 == 0 ? 1e-6 : 0));
  }
  return block;
}

struct Answer {
  BlockRange range;
  BlockSums sums;
  BlockCounts counts;
  std::vector<uint32_t> places = std::vector<uint32_t>(kAccuracyBlock);
};

Answer Ask(const AccuracyKernels& kernels, const Block& block, size_t count, const DTypeStandard* standard) {
  std::vector<double> a(kAccuracyBlock), b(kAccuracyBlock), d(kAccuracyBlock), ulps(kAccuracyBlock);
  Answer answer;
  const auto subtract =
      kernels.subtract[static_cast<size_t>(AccuracyElement::kFloat32)][static_cast<size_t>(AccuracyElement::kFloat64)];
  answer.range =
      subtract(block.from_a(), block.from_b(), count, std::numeric_limits<double>::max(), a.data(), b.data(), d.data());
  const size_t padded = (count + kAccuracyLanes - 1) / kAccuracyLanes * kAccuracyLanes;
  for (size_t i = 0; i < padded; ++i) {
    const double expected = i < count ? block.output[i] - block.golden[i] : 0;
    EXPECT_EQ(d[i], expected) << kernels.name << " " << i;
  }
  kernels.sum(a.data(), b.data(), d.data(), padded, answer.range.least, standard, ulps.data(), &answer.sums);
  kernels.count(b.data(), d.data(), ulps.data(), padded, standard, answer.sums, &answer.counts);
  kernels.place(d.data(), count, answer.places.data());
  return answer;
}

class AccuracyKernelsTest : public testing::TestWithParam<const AccuracyKernels*> {};

TEST_P(AccuracyKernelsTest, DivideByNumbersThatOnlyDoublesHave) {
  for (const bool zeros : {false, true}) {
    Block block;
    const size_t count = 64;
    for (size_t i = 0; i < count; ++i) {
      block.golden[i] = zeros && i % 3 == 0 ? 0 : i % 2 == 0 ? 1e-320 : 2.0;
      block.output[i] = block.golden[i] == 2.0 ? 2.0F : 0.0F;
    }
    const Answer got = Ask(*GetParam(), block, count, StandardOf(v1::DTYPE_FLOAT32));
    EXPECT_EQ(got.sums.max_rel, 1) << zeros;
    EXPECT_LT(got.sums.cann_max, 1e-300) << zeros;
  }
}

TEST_P(AccuracyKernelsTest, GiveWhatThePortableOnesGive) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    for (const DTypeStandard* standard : {StandardOf(v1::DTYPE_FLOAT32), StandardOf(v1::DTYPE_BFLOAT16),
                                          StandardOf(v1::DTYPE_FLOAT64), static_cast<const DTypeStandard*>(nullptr)}) {
      const Block block = Drawn(seed % 2 == 0, seed);
      const size_t count = seed % 3 == 0 ? kAccuracyBlock : kAccuracyBlock - 5 * seed;
      const Answer got = Ask(*GetParam(), block, count, standard);
      const Answer expected = Ask(kPortableAccuracy, block, count, standard);
      SCOPED_TRACE(testing::Message() << GetParam()->name << " seed " << seed << " elements " << count);
      EXPECT_TRUE(got.range.finite);
      EXPECT_EQ(got.range.least, expected.range.least);
      EXPECT_EQ(got.places, expected.places);
      // Structures of doubles, and of counts, alone.
      double sums[2][sizeof(BlockSums) / sizeof(double)];
      uint64_t counts[2][sizeof(BlockCounts) / sizeof(uint64_t)];
      std::memcpy(sums[0], &got.sums, sizeof(BlockSums));
      std::memcpy(sums[1], &expected.sums, sizeof(BlockSums));
      std::memcpy(counts[0], &got.counts, sizeof(BlockCounts));
      std::memcpy(counts[1], &expected.counts, sizeof(BlockCounts));
      for (size_t i = 0; i < std::size(sums[0]); ++i) {
        if (sums[0][i] == sums[1][i]) continue;  // both may be infinite: ULPs of float64 at 0
        EXPECT_NEAR(sums[0][i], sums[1][i], 1e-12 * std::fabs(sums[1][i])) << "sum " << i;
      }
      EXPECT_THAT(counts[0], testing::ElementsAreArray(counts[1]));
    }
  }
}

void GiveInOneWalkWhatTheyGiveInTwo(const AccuracyKernels& kernels) {
  const auto fuse = kernels.fuse[1][0];
  for (unsigned seed = 0; seed < 20; ++seed) {
    // Some with numbers under the small limit.
    Block block = Drawn(false, seed);
    for (size_t i = seed; seed % 2 == 1 && i < kAccuracyBlock; i += 50) block.golden[i] *= 1e-9;
    const DTypeStandard* const standard = StandardOf(seed % 3 == 0 ? v1::DTYPE_BFLOAT16 : v1::DTYPE_FLOAT32);
    const Answer expected = Ask(kernels, block, kAccuracyBlock, standard);
    std::vector<double> b(kAccuracyBlock), d(kAccuracyBlock), ulps(kAccuracyBlock);
    std::vector<uint32_t> before(kAccuracyBlock), histogram(kAccuracyBlock), places(kAccuracyBlock);
    for (size_t i = 0; i < kAccuracyBlock; ++i) before[i] = static_cast<uint32_t>(i % 7);
    BlockSums got;
    const BlockRange range = fuse(block.from_a(), block.from_b(), standard->largest, *standard, before.data(),
                                  histogram.data(), b.data(), d.data(), ulps.data(), places.data(), &got);
    EXPECT_TRUE(range.finite);
    EXPECT_EQ(places, expected.places);
    EXPECT_THAT(std::span(histogram).first(8), testing::ElementsAre(74, 73, 73, 73, 73, 73, 73, 0));
    EXPECT_EQ(range.least, expected.range.least);
    EXPECT_EQ(b, block.golden);
    double sums[2][sizeof(BlockSums) / sizeof(double)];
    std::memcpy(sums[0], &got, sizeof(BlockSums));
    std::memcpy(sums[1], &expected.sums, sizeof(BlockSums));
    for (size_t i = 0; i < std::size(sums[0]); ++i) {
      EXPECT_NEAR(sums[0][i], sums[1][i], 1e-12 * std::fabs(sums[1][i])) << "seed " << seed << " sum " << i;
    }
  }
}

TEST(AccuracyKernels, GiveInOneWalkWhatTheyGiveInTwo) {
  for (const AccuracyKernels* kernels : SupportedAccuracyKernels()) {
    if (kernels->fuse[1][0] != nullptr) GiveInOneWalkWhatTheyGiveInTwo(*kernels);
  }
}

void SeeInOneWalkWhatNeedsTwo(const AccuracyKernels& kernels) {
  const auto fuse = kernels.fuse[1][0];
  const DTypeStandard& standard = *StandardOf(v1::DTYPE_FLOAT32);
  for (const double value :
       {0.0, 1e-61, 1e39, 1e308, std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    for (const size_t place : {size_t{0}, size_t{13}, kAccuracyBlock - 1}) {
      Block block = Drawn(false, 1);
      block.golden[place] = value;
      std::vector<double> b(kAccuracyBlock), d(kAccuracyBlock), ulps(kAccuracyBlock);
      std::vector<uint32_t> places(kAccuracyBlock);
      BlockSums sums;
      const BlockRange range = fuse(block.from_a(), block.from_b(), standard.largest, standard, nullptr, nullptr,
                                    b.data(), d.data(), ulps.data(), places.data(), &sums);
      EXPECT_FALSE(range.finite && range.least >= AccuracyKernels::kLeastFused) << value << " at " << place;
    }
  }
}

TEST(AccuracyKernels, SeeInOneWalkWhatNeedsTwo) {
  for (const AccuracyKernels* kernels : SupportedAccuracyKernels()) {
    if (kernels->fuse[1][0] != nullptr) SeeInOneWalkWhatNeedsTwo(*kernels);
  }
}

TEST_P(AccuracyKernelsTest, NoticeWhatIsNotFinite) {
  for (const size_t place : {size_t{0}, size_t{7}, size_t{300}, kAccuracyBlock - 6}) {
    for (const bool in_golden : {false, true}) {
      for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Block block = Drawn(false, 1);
        if (in_golden) {
          block.golden[place] = value;
        } else {
          block.output[place] = static_cast<float>(value);
        }
        std::vector<double> a(kAccuracyBlock), b(kAccuracyBlock), d(kAccuracyBlock);
        const auto subtract = GetParam()->subtract[static_cast<size_t>(AccuracyElement::kFloat32)]
                                                  [static_cast<size_t>(AccuracyElement::kFloat64)];
        EXPECT_FALSE(subtract(block.from_a(), block.from_b(), kAccuracyBlock - 5, std::numeric_limits<double>::max(),
                              a.data(), b.data(), d.data())
                         .finite)
            << GetParam()->name << " " << place << " " << in_golden << " " << value;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, AccuracyKernelsTest,
                         testing::ValuesIn(SupportedAccuracyKernels().begin(), SupportedAccuracyKernels().end()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace msprobe::server
