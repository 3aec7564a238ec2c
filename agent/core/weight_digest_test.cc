#include "agent/core/weight_digest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace msprobe::core {
namespace {

std::vector<uint64_t> Factors(size_t count, size_t first = 0) {
  std::vector<uint64_t> factors(count);
  for (size_t i = 0; i < count; ++i) factors[i] = ColumnFactor(first + i);
  return factors;
}

TEST(WeightDigest, IsTheSumThatIsWrittenDown) {
  for (const size_t word_size : {1, 2, 4}) {
    for (const size_t count : {0, 1, 7, 8, 9, 64, 1003}) {
      std::vector<unsigned char> bytes(count * word_size + 1);
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 37 + 129);
      const unsigned char* const words = bytes.data() + 1;  // wherever they lie
      uint64_t expected = 0;
      for (size_t i = 0; i < count; ++i) {
        int64_t word = word_size == 1 ? static_cast<int8_t>(words[i]) : 0;
        if (word_size == 2) word = static_cast<int16_t>(words[2 * i] | words[2 * i + 1] << 8);
        if (word_size == 4) {
          int32_t value;
          std::memcpy(&value, words + 4 * i, 4);
          word = value;
        }
        expected += static_cast<uint64_t>(word) * ColumnFactor(i);
      }
      EXPECT_EQ(SumOfWords(words, word_size, count, Factors(count).data()), expected) << word_size << " " << count;
    }
  }
}

// They are part of what is stored: a change makes every recorded digest differ.
TEST(WeightDigest, FactorsStay) {
  EXPECT_EQ(RowFactor(0), 0xe220a8397b1dcdaf);
  EXPECT_EQ(ColumnFactor(0), 0x6e789e6aa1b965f5);
  EXPECT_EQ(RowFactor(1), 0x06c45d188009454f);
}

TEST(WeightDigest, PartsOfARowAddUp) {
  std::vector<int32_t> row(100);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<int32_t>(i * 2654435761u);
  const uint64_t whole = SumOfWords(row.data(), 4, 100, Factors(100).data());
  EXPECT_EQ(
      SumOfWords(row.data(), 4, 30, Factors(30).data()) + SumOfWords(row.data() + 30, 4, 70, Factors(70, 30).data()),
      whole);
}

TEST(WeightDigest, ThereAreAtMostSixtyFourBlocks) {
  for (const uint64_t rows : {1, 63, 64, 65, 100, 4096, 151936}) {
    const uint64_t block = RowsOfDigestBlock(rows);
    EXPECT_LE((rows + block - 1) / block, kDigestBlocks) << rows;
  }
}

}  // namespace
}  // namespace msprobe::core
