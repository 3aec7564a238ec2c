#include "server/analysis/checkpoint/weight_comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "agent/core/weight_digest.h"
#include "server/format/tensor_file/widen.h"

namespace msprobe::server {
namespace {

using Kind = WeightDifference::Kind;

// 128 rows, in blocks of two.
DigestedWeight Drawn(uint64_t seed, v1::DType dtype = v1::DTYPE_FLOAT32) {
  std::mt19937_64 drawn(seed);
  BlockDigests blocks(64);
  for (uint64_t& block : blocks) block = drawn();
  return {.dtype = dtype, .shape = {128, 8}, .digests = {{dtype, blocks}}, .missing = 0};
}

TEST(WeightComparison, NamesWhatBecameOfATensor) {
  const DigestedWeights golden{{"a", Drawn(1)}, {"b", Drawn(2)}};
  const DigestedWeights older{{"a", Drawn(3)}}, oldest{{"a", Drawn(4)}};
  const WeightComparison comparison(golden, {{7, &older}, {5, &oldest}});
  EXPECT_EQ(comparison.Judge(Drawn(1), "a").kind, Kind::kEqual);
  EXPECT_EQ(comparison.Judge(Drawn(9), "a").kind, Kind::kDiffers);

  const WeightDifference swapped = comparison.Judge(Drawn(2), "a");
  EXPECT_EQ(swapped.kind, Kind::kSwapped);
  EXPECT_EQ(swapped.other, "b");

  const WeightDifference stale = comparison.Judge(Drawn(4), "a");
  EXPECT_EQ(stale.kind, Kind::kStale);
  EXPECT_EQ(stale.step, 5);

  DigestedWeight zeros = Drawn(1);
  zeros.digests.at(v1::DTYPE_FLOAT32).assign(64, 0);
  EXPECT_EQ(comparison.Judge(zeros, "a").note, "the target is all zeros");

  DigestedWeight other_shape = Drawn(1);
  other_shape.shape = {8, 128};
  EXPECT_EQ(comparison.Judge(other_shape, "a").kind, Kind::kShape);
  EXPECT_EQ(comparison.Judge(Drawn(1, v1::DTYPE_BFLOAT16), "a").kind, Kind::kDType);
}

TEST(WeightComparison, NamesTheRowsOfAPart) {
  const DigestedWeights golden{{"a", Drawn(1)}}, older{{"a", Drawn(3)}};
  const WeightComparison comparison(golden, {{7, &older}});
  DigestedWeight target = Drawn(1);
  BlockDigests& blocks = target.digests.at(v1::DTYPE_FLOAT32);
  const DigestedWeight then = Drawn(3);
  for (const size_t block : {4, 5, 60}) blocks[block] = then.own()[block];
  WeightDifference found = comparison.Judge(target, "a");
  EXPECT_EQ(found.kind, Kind::kPartial);
  EXPECT_EQ(found.rows, (std::vector<WeightDifference::Rows>{{8, 12}, {120, 122}}));
  EXPECT_EQ(found.step, 7);

  blocks[60] += 1;  // of no version
  found = comparison.Judge(target, "a");
  EXPECT_EQ(found.kind, Kind::kPartial);
  EXPECT_FALSE(found.step.has_value());
}

TEST(WeightComparison, HoldsDTypesAgainstWhatTheyWereRoundedTo) {
  DigestedWeight golden = Drawn(1);
  golden.digests.emplace(v1::DTYPE_BFLOAT16, Drawn(2).own());
  const DigestedWeights weights{{"a", golden}};
  const WeightComparison comparison(weights, {});
  EXPECT_EQ(comparison.Judge(Drawn(2, v1::DTYPE_BFLOAT16), "a").kind, Kind::kCast);
  EXPECT_EQ(comparison.Judge(Drawn(3, v1::DTYPE_BFLOAT16), "a").kind, Kind::kDiffers);
}

class DigestedFile : public testing::Test {
 protected:
  template <typename Element>
  LogicalTensor Write(v1::DType dtype, const std::vector<Element>& elements) {
    const std::string path = testing::TempDir() + "/weights" + std::to_string(++files_);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(elements.data()),
               static_cast<std::streamsize>(elements.size() * sizeof(Element)));
    return PlainTensor(dtype, {static_cast<int64_t>(elements.size() / 4), 4}, path, 0);
  }

  static BlockDigests Digest(const LogicalTensor& tensor, v1::DType dtype) {
    auto blocks = DigestBlocks(tensor, dtype, [] { return false; });
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    return blocks.value_or(BlockDigests());
  }

 private:
  int files_ = 0;
};

TEST_F(DigestedFile, IsTheSumThatIsWrittenDown) {
  std::vector<int16_t> elements(400000);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<int16_t>(i * 40503);
  BlockDigests expected(64);
  const uint64_t block_rows = core::RowsOfDigestBlock(100000);
  for (size_t i = 0; i < elements.size(); ++i) {
    expected[i / 4 / block_rows] +=
        core::RowFactor(i / 4) * core::ColumnFactor(i % 4) * static_cast<uint64_t>(int64_t{elements[i]});
  }
  EXPECT_EQ(Digest(Write(v1::DTYPE_BFLOAT16, elements), v1::DTYPE_BFLOAT16), expected);
}

// Every number of 16 bits, and what lies between two of them: a quarter, half and three quarters of the way.
TEST_F(DigestedFile, CastsAsTorchDoes) {
  for (const v1::DType dtype : {v1::DTYPE_FLOAT16, v1::DTYPE_BFLOAT16}) {
    std::vector<float> wide;
    std::vector<uint16_t> narrow;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float value = WidenToFloat(dtype, static_cast<uint16_t>(bits));
      const float next = WidenToFloat(dtype, static_cast<uint16_t>(bits + 1));
      if (!std::isfinite(value) || !std::isfinite(next)) continue;
      const auto up = static_cast<uint16_t>(bits + 1);
      const double step = (static_cast<double>(next) - value) / 4;
      if (std::signbit(value) != std::signbit(next)) continue;
      for (const int quarter : {0, 1, 2, 3}) {
        wide.push_back(static_cast<float>(value + quarter * step));
        const bool goes_up = quarter == 3 || (quarter == 2 && (bits & 1) != 0);
        narrow.push_back(goes_up ? up : static_cast<uint16_t>(bits));
      }
    }
    for (const float value : {65519.0f, 65520.0f, INFINITY, -INFINITY}) {
      if (dtype != v1::DTYPE_FLOAT16) break;
      wide.push_back(value);
      narrow.push_back(value == 65519.0f ? 0x7bff : value < 0 ? 0xfc00 : 0x7c00);
    }
    EXPECT_EQ(Digest(Write(v1::DTYPE_FLOAT32, wide), dtype), Digest(Write(dtype, narrow), dtype)) << dtype;
    EXPECT_EQ(Digest(Write(dtype, narrow), v1::DTYPE_FLOAT32).size(), 64u);
  }
}

}  // namespace
}  // namespace msprobe::server
