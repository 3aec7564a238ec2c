#include "agent/stats/checksum.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "agent/stats/naive_oracle_for_test.h"
#include "agent/stats/statistics.h"

namespace msprobe::stats {
namespace {

using naive::Tensor;
using naive::Vector;

uint32_t BitwiseCrc(const std::vector<char>& bytes) {
  uint32_t crc = ~0u;
  for (char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

uint64_t BytewiseXor(const std::vector<char>& bytes) {
  uint64_t result = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    result ^= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << i % 8 * 8;
  return result;
}

void ExpectMatchesOracle(const Tensor& tensor) {
  const TensorView view = tensor.view();
  const std::vector<char> bytes = naive::Bytes(view);
  EXPECT_EQ(Crc32(view), BitwiseCrc(bytes));
  uint32_t crc = 1;
  ComputeStatistics(view, nullptr, {.crc32 = &crc});
  EXPECT_EQ(crc, BitwiseCrc(bytes));
  EXPECT_EQ(Xor64(view), BytewiseXor(bytes));
  std::vector<char> copy(bytes.size() + 1, 'x');
  CopyContiguous(view, copy.data());
  EXPECT_EQ(copy.back(), 'x') << "wrote past the end";
  copy.pop_back();
  EXPECT_EQ(copy, bytes);
}

Tensor RandomBytes(DType dtype, size_t elements) {
  std::mt19937 random(7);
  std::vector<uint8_t> bytes(elements * ElementSize(dtype));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return Vector(dtype, bytes);
}

// The last part first.
class Backwards final : public Executor {
 public:
  void Run(size_t parts, absl::FunctionRef<void(size_t part)> body) override {
    for (size_t part = parts; part-- > 0;) body(part);
  }
};

TEST(ChecksumTest, PartsOfALargeTensorMakeTheWhole) {
  Backwards executor;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt32}) {
    for (const size_t bytes : {kSharedBytes, kSharedBytes + 8, 9 * kSharedBytes, 9 * kSharedBytes - 8}) {
      const Tensor tensor = RandomBytes(dtype, bytes / ElementSize(dtype));
      uint32_t crc = 0;
      const Statistics both = ComputeStatistics(tensor.view(), &executor, {.crc32 = &crc});
      EXPECT_EQ(SharedCrc32(tensor.view(), executor), Crc32(tensor.view()));
      EXPECT_EQ(crc, Crc32(tensor.view())) << static_cast<int>(dtype) << " " << bytes;
      EXPECT_EQ(both.zero_count, ComputeStatistics(tensor.view()).zero_count);
    }
  }
}

TEST(ChecksumTest, OfFloat32WhateverTheDType) {
  const Tensor wide = Vector<double>(DType::kFloat64, {1.5, -0.0, 0.1, 1e300, 3e-46});
  const std::vector<float> rounded = {1.5f, -0.0f, 0.1f, std::numeric_limits<float>::infinity(), 0.0f};
  EXPECT_EQ(Crc32AsFloat32(wide.view()), Crc32(Vector(DType::kFloat32, rounded).view()));
  const Tensor halves = Vector<uint16_t>(DType::kBFloat16, {0x3fc0, 0x8000});
  EXPECT_EQ(Crc32AsFloat32(halves.view()), Crc32(Vector<float>(DType::kFloat32, {1.5f, -0.0f}).view()));
}

TEST(ChecksumTest, RecordedCrcs) {
  EXPECT_EQ(Crc32(Vector<float>(DType::kFloat32, {1, 2, 3, 4, 5}).view()), 0x3df3c1bau);
  EXPECT_EQ(Crc32(Vector<uint16_t>(DType::kBFloat16, {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0}).view()), 0xa2bf8faau);
  EXPECT_EQ(Crc32(Vector<uint8_t>(DType::kFloat8E5M2, {0x3c, 0x40, 0x42, 0x44, 0x45}).view()), 0xd85a9c17u);
  EXPECT_EQ(Crc32(Vector<float>(DType::kFloat32, {}).view()), 0u);
}

TEST(ChecksumTest, XorOfWordsPaddedWithZeros) {
  EXPECT_EQ(Xor64(Vector<int64_t>(DType::kInt64, {1, 6, 16}).view()), 23u);
  EXPECT_EQ(Xor64(Vector<int32_t>(DType::kInt32, {1, 2, 4}).view()), 0x0000000200000005u);
  EXPECT_EQ(Xor64(Vector<uint8_t>(DType::kQUInt8, {7}).view()), 7u);
  EXPECT_EQ(Xor64(Vector<float>(DType::kFloat32, {}).view()), 0u);
}

class EveryWidth : public testing::TestWithParam<DType> {};

TEST_P(EveryWidth, EveryLayoutIsReadInRowMajorOrder) {
  struct Case {
    const char* name;
    std::vector<int64_t> sizes, strides;
    int64_t offset;
  };
  const Case cases[] = {
      {"contiguous", {19999}, {1}, 0},
      {"scalar", {}, {}, 3},
      {"empty", {0, 3}, {3, 1}, 0},
      {"transposed", {70, 101}, {1, 70}, 0},
      {"long transposed", {5, 3999}, {1, 5}, 0},
      {"odd rows", {7, 2333}, {2500, 1}, 1},
      {"odd short rows", {77, 3}, {100, 1}, 1},
      {"expanded", {9, 4, 33}, {0, 33, 1}, 2},
      {"expanded inside", {33, 9}, {1, 0}, 2},
      {"reversed", {999}, {-2}, 1999},
      {"channels last", {2, 3, 8, 9}, {216, 1, 27, 3}, 0},
      {"nine dimensions", {2, 2, 2, 2, 2, 2, 2, 2, 3}, {5000, 2500, 1200, 600, 300, 150, 70, 30, 5}, 0},
  };
  Tensor tensor = RandomBytes(GetParam(), 20000);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    tensor.sizes = c.sizes;
    tensor.strides = c.strides;
    tensor.offset = c.offset;
    ExpectMatchesOracle(tensor);
  }
}

TEST_P(EveryWidth, LazyBitsAreResolved) {
  Tensor tensor = RandomBytes(GetParam(), 5001);
  for (bool conjugate : {false, true}) {
    for (bool negative : {false, true}) {
      tensor.conjugate = conjugate;
      tensor.negative = negative;
      SCOPED_TRACE(testing::Message() << "conjugate " << conjugate << " negative " << negative);
      ExpectMatchesOracle(tensor);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checksum, EveryWidth,
                         testing::Values(DType::kInt8, DType::kFloat8E5M2, DType::kFloat16, DType::kInt16,
                                         DType::kFloat32, DType::kUInt32, DType::kInt64, DType::kFloat64,
                                         DType::kComplex32, DType::kComplex64, DType::kComplex128));

TEST(ChecksumTest, NegatedFnuzKeepsItsNanAndItsZero) {
  Tensor tensor = Vector<uint8_t>(DType::kFloat8E4M3FNUZ, {0x00, 0x80, 0x01, 0x81});
  tensor.negative = true;
  std::vector<uint8_t> copy(4);
  CopyContiguous(tensor.view(), copy.data());
  EXPECT_EQ(copy, (std::vector<uint8_t>{0x00, 0x80, 0x81, 0x01}));
}

}  // namespace
}  // namespace msprobe::stats
