#include "agent/stats/signs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "agent/stats/naive_oracle_for_test.h"
#include "agent/stats/statistics_internal.h"

namespace msprobe::stats {
namespace {

using naive::Tensor;
using naive::Vector;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

std::vector<uint8_t> ExpectedSigns(const TensorView& view) {
  std::vector<uint8_t> bits(SignBytes(static_cast<size_t>(view.element_count())));
  size_t at = 0;
  naive::ForEachElement(view, [&](const char* element) {
    bits[at / 8] |= static_cast<uint8_t>((naive::Decode(view, element)[0] > 0) << (at % 8));
    ++at;
  });
  return bits;
}

void ExpectSigns(const Tensor& tensor) {
  const TensorView view = tensor.view();
  const std::vector<uint8_t> expected = ExpectedSigns(view);
  for (const Kernels* kernels : SupportedKernels()) {
    SCOPED_TRACE(kernels->name);
    std::vector<uint8_t> bits(expected.size() + 1, 0xaa);
    WriteSignsWith(view, *kernels, bits.data());
    EXPECT_EQ(bits.back(), 0xaa) << "one byte too many";
    bits.pop_back();
    EXPECT_EQ(bits, expected);
    std::vector<uint8_t> fused(expected.size() + 1, 0xaa);
    const Statistics with = ComputeStatisticsWith(view, *kernels, nullptr, {.signs = fused.data()});
    if (!expected.empty()) {
      EXPECT_EQ(fused.back(), 0xaa);
      fused.pop_back();
      EXPECT_EQ(fused, expected) << "in the pass of the statistics";
      const Statistics without = ComputeStatisticsWith(view, *kernels);
      EXPECT_EQ(with.zero_count, without.zero_count);
      EXPECT_TRUE(with.norm == without.norm || std::isnan(without.norm));
    }
  }
}

// Any bits, among them NaN, infinities, zeros of both signs and denormals.
template <typename Word>
Tensor AnyBits(DType dtype, size_t count) {
  std::mt19937_64 random(count);
  std::vector<Word> words(count);
  for (Word& word : words) {
    word = static_cast<Word>(random());
    if (random() % 8 == 0) word = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
    if (random() % 8 == 0) word = static_cast<Word>(random() % 2);
  }
  return Vector(dtype, words);
}

TEST(SignsTest, OneBitAnElementForEveryDTypeAndLength) {
  for (size_t count : {0u, 1u, 7u, 8u, 9u, 63u, 64u, 65u, 127u, 1000u, 8192u, 20'011u}) {
    SCOPED_TRACE(count);
    ExpectSigns(AnyBits<uint64_t>(DType::kFloat64, count));
    ExpectSigns(AnyBits<uint32_t>(DType::kFloat32, count));
    ExpectSigns(AnyBits<uint16_t>(DType::kFloat16, count));
    ExpectSigns(AnyBits<uint16_t>(DType::kBFloat16, count));
    ExpectSigns(AnyBits<uint8_t>(DType::kFloat8E4M3FN, count));
    ExpectSigns(AnyBits<uint8_t>(DType::kFloat8E5M2, count));
  }
}

TEST(SignsTest, ZerosAndNaNCountAsNegative) {
  const Tensor tensor = Vector<float>(DType::kFloat32, {1, -1, 0, -0.0f, kNaN, -kNaN, kInf, -kInf, kTiny, -kTiny});
  uint8_t bits[2];
  WriteSigns(tensor.view(), bits);
  EXPECT_EQ(bits[0], 0b01000001);
  EXPECT_EQ(bits[1], 0b00000001);
}

TEST(SignsTest, FollowsTheOrderOfElementsWhateverLiesWhereInMemory) {
  Tensor tensor = AnyBits<uint32_t>(DType::kFloat32, 3 * 5 * 7 * 11);
  tensor.sizes = {5, 7, 33};
  tensor.strides = {1, 5, 35};  // transposed
  ExpectSigns(tensor);
  tensor.sizes = {33, 4, 7};
  tensor.strides = {35, 0, 5};  // repeated
  ExpectSigns(tensor);
  tensor.sizes = {33, 3};
  tensor.strides = {35, 2};  // with gaps
  tensor.offset = 1;
  tensor.negative = true;
  ExpectSigns(tensor);
  Tensor halves = AnyBits<uint16_t>(DType::kBFloat16, 3 * 5000);
  halves.sizes = {3, 4999};  // long runs that end inside of a byte
  halves.strides = {5000, 1};
  ExpectSigns(halves);
}

TEST(SignsTest, ThreadsWriteTheSameSigns) {
  class Backwards final : public Executor {
    void Run(size_t parts, absl::FunctionRef<void(size_t)> body) override {
      while (parts > 0) body(--parts);
    }
  } executor;
  const Tensor tensor = AnyBits<uint32_t>(DType::kFloat32, kSharedBytes / 4 + 12'345);
  std::vector<uint8_t> bits(SignBytes(kSharedBytes / 4 + 12'345));
  ComputeStatistics(tensor.view(), &executor, {.signs = bits.data()});
  EXPECT_EQ(bits, ExpectedSigns(tensor.view()));
}

TEST(SignsTest, MoreThanCachesHoldAreTheSameForEveryKernel) {
  Tensor tensor = AnyBits<uint16_t>(DType::kFloat16, 8 * kStreamedSigns + 100);
  ExpectSigns(tensor);
  tensor.sizes = {8, static_cast<int64_t>(kStreamedSigns) + 9};  // runs that end inside of a byte
  tensor.strides = {static_cast<int64_t>(kStreamedSigns) + 10, 1};
  ExpectSigns(tensor);
}

TEST(SignsTest, IntervalsAreOpenBelowAndClosedAbove) {
  const Tensor tensor = Vector<float>(DType::kFloat32, {9.3f, 5.4f, -1, -12.3f, 0, -0.0f, 10, kInf, -kInf, kNaN});
  int64_t counts[5];
  const double bounds[] = {-10, 0, 10};
  CountIntervals(tensor.view(), bounds, counts);
  EXPECT_EQ(std::vector<int64_t>(counts, counts + 5), (std::vector<int64_t>{2, 3, 3, 2, 2}));
  int64_t two[2];
  CountIntervals(tensor.view(), {}, two);
  EXPECT_EQ(std::vector<int64_t>(two, two + 2), (std::vector<int64_t>{10, 2}));
  CountIntervals(Vector<float>(DType::kFloat32, {}).view(), bounds, counts);
  EXPECT_EQ(std::vector<int64_t>(counts, counts + 5), std::vector<int64_t>(5, 0));
}

}  // namespace
}  // namespace msprobe::stats
