#include "agent/stats/decode.h"

#include <gtest/gtest.h>

#include "agent/stats/naive_oracle_for_test.h"

namespace msprobe::stats {
namespace {

void ExpectSameValue(double actual, long double expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual));
  } else {
    EXPECT_EQ(actual, static_cast<double>(expected));
    EXPECT_EQ(std::signbit(actual), std::signbit(expected));
  }
}

TEST(DecodeTest, EveryHalfAndBFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    ExpectSameValue(DecodeFloat16(static_cast<uint16_t>(bits)), naive::Ieee(bits, 5, 10));
    ExpectSameValue(DecodeBFloat16(static_cast<uint16_t>(bits)), naive::Ieee(bits, 8, 7));
    if (HasFailure()) FAIL() << "at bits " << bits;
  }
}

TEST(DecodeTest, EveryFloat8) {
  for (DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E5M2, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ,
                      DType::kFloat8E8M0FNU}) {
    for (int bits = 0; bits < 256; ++bits) {
      SCOPED_TRACE(testing::Message() << "dtype " << static_cast<int>(dtype) << " bits " << bits);
      const char byte = static_cast<char>(bits);
      TensorView view;
      view.dtype = dtype;
      ExpectSameValue(DecodeFloat8(dtype, static_cast<uint8_t>(bits)), naive::Decode(view, &byte)[0]);
    }
  }
}

// From the formats' published tables.
TEST(DecodeTest, LimitsOfFloat8) {
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E4M3FN, 0x7e), 448);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E4M3FN, 0x01), 0x1p-9);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E5M2, 0x7b), 57344);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E5M2, 0x01), 0x1p-16);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E4M3FNUZ, 0x7f), 240);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E4M3FNUZ, 0x01), 0x1p-10);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E5M2FNUZ, 0x7f), 57344);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E5M2FNUZ, 0x01), 0x1p-17);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E8M0FNU, 0), 0x1p-127);
  EXPECT_EQ(DecodeFloat8(DType::kFloat8E8M0FNU, 254), 0x1p127);
}

TEST(DecodeTest, Float4) {
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint8_t i = 0; i < 8; ++i) {
    EXPECT_EQ(DecodeFloat4(i), values[i]);
    EXPECT_EQ(DecodeFloat4(static_cast<uint8_t>(i | 8)), -values[i]);
  }
}

}  // namespace
}  // namespace msprobe::stats
