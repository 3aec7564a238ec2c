#include "agent/stats/quantisation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "agent/stats/decode.h"
#include "agent/stats/naive_oracle_for_test.h"
#include "agent/stats/statistics_internal.h"

namespace msprobe::stats {
namespace {

constexpr Quantisation::Formats kAll = (1U << kQuantisedFormats) - 1;

// The magnitudes of a format, in the order of their bits.
std::vector<double> NumbersOf(const std::string& format) {
  std::vector<double> numbers;
  if (format == "e4m3") {
    for (int bits = 0; bits < 0x7f; ++bits) numbers.push_back(DecodeFloat8(DType::kFloat8E4M3FN, bits));
  } else if (format == "e5m2") {
    for (int bits = 0; bits < 0x7c; ++bits) numbers.push_back(DecodeFloat8(DType::kFloat8E5M2, bits));
  } else if (format == "fp4") {
    for (int bits = 0; bits < 8; ++bits) numbers.push_back(DecodeFloat4(static_cast<uint8_t>(bits)));
  } else if (format == "fp16") {
    for (int bits = 0; bits < 0x7c00; ++bits) numbers.push_back(DecodeFloat16(static_cast<uint16_t>(bits)));
  } else {
    for (int bits = 0; bits < 0x7f80; ++bits) numbers.push_back(DecodeBFloat16(static_cast<uint16_t>(bits)));
  }
  return numbers;
}

// The nearest of these to a magnitude; of two that are equally near that of even bits.
double Nearest(const std::vector<double>& numbers, double magnitude) {
  const auto above = std::lower_bound(numbers.begin(), numbers.end(), magnitude);
  if (above == numbers.end()) return numbers.back();
  if (above == numbers.begin()) return *above;
  const double up = *above - magnitude, down = magnitude - *(above - 1);
  if (up == down) return (above - numbers.begin()) % 2 == 0 ? *above : *(above - 1);
  return up < down ? *above : *(above - 1);
}

// By definition, element by element. rows: of the last dimension.
Quantisation Naive(const std::vector<std::vector<float>>& rows) {
  const std::vector<double> e4m3 = NumbersOf("e4m3"), e5m2 = NumbersOf("e5m2"), fp4 = NumbersOf("fp4");
  const std::vector<double> fp16 = NumbersOf("fp16"), bf16 = NumbersOf("bf16");
  double largest = 0, squares = 0;
  for (const auto& row : rows) {
    for (const float x : row) {
      if (!std::isfinite(x)) continue;
      largest = std::max(largest, std::fabs(static_cast<double>(x)));
      squares += static_cast<double>(x) * x;
    }
  }
  Quantisation out;
  for (size_t format = 0; format < kQuantisedFormats; ++format) {
    const std::string name(Quantisation::kFormats[format]);
    const std::vector<double>& numbers = name == "bf16"                           ? bf16
                                         : name == "fp16"                         ? fp16
                                         : name.find("e4m3") != std::string::npos ? e4m3
                                         : name.find("e5m2") != std::string::npos ? e5m2
                                                                                  : fp4;
    const size_t block = name == "nvfp4" ? 16 : 32;
    double errors = 0;
    for (const auto& row : rows) {
      for (size_t begin = 0; begin < row.size(); begin += block) {
        const size_t end = std::min(row.size(), begin + block);
        double most = 0;
        for (size_t i = begin; i < end; ++i) {
          if (std::isfinite(row[i])) most = std::max(most, std::fabs(static_cast<double>(row[i])));
        }
        float scale = 1;  // by which a number of the format is multiplied
        if (name == "e4m3" || name == "e5m2") scale = static_cast<float>(largest / numbers.back());
        if (name.starts_with("mx") && most > 0) {
          scale = static_cast<float>(std::exp2(std::max(-127, std::ilogb(most) - std::ilogb(numbers.back()))));
        }
        if (name == "nvfp4") scale = static_cast<float>(Nearest(e4m3, most / 6 * 2688 / largest) / (2688 / largest));
        for (size_t i = begin; i < end; ++i) {
          const double x = std::isfinite(row[i]) ? std::fabs(static_cast<double>(row[i])) : 0;
          const double rounded = scale == 0 ? 0 : Nearest(numbers, x / scale) * scale;
          errors += (x - rounded) * (x - rounded);
          out.losses[format].zeroed += x != 0 && rounded == 0;
        }
      }
    }
    out.losses[format].error = std::sqrt(errors / squares);
  }
  return out;
}

void ExpectNear(const Quantisation& actual, const Quantisation& expected, double zeroed_slack = 0) {
  for (size_t i = 0; i < kQuantisedFormats; ++i) {
    SCOPED_TRACE(Quantisation::kFormats[i]);
    EXPECT_NEAR(static_cast<double>(actual.losses[i].zeroed), static_cast<double>(expected.losses[i].zeroed),
                zeroed_slack);
    EXPECT_NEAR(actual.losses[i].error, expected.losses[i].error, 1e-4 * expected.losses[i].error + 1e-6);  // floats
  }
}

Quantisation Of(const TensorView& view, const Kernels& kernels = BestKernels()) {
  Quantisation quantisation;
  ComputeStatisticsWith(view, kernels, nullptr, {.quantisation = &quantisation, .formats = kAll});
  return quantisation;
}

// Magnitudes over many orders, among them zeros and, if asked for, what is not finite.
std::vector<std::vector<float>> RowsOf(size_t count, size_t length, double spread, bool special) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<std::vector<float>> rows(count, std::vector<float>(length));
  for (auto& row : rows) {
    for (float& x : row) {
      x = static_cast<float>(normal(random) * std::exp2(spread * normal(random)));
      if (random() % 16 == 0) x = 0;
      if (special && random() % 16 == 0)
        x = random() % 2 == 0 ? std::nanf("") : -std::numeric_limits<float>::infinity();
    }
  }
  return rows;
}

naive::Tensor TensorOf(const std::vector<std::vector<float>>& rows) {
  std::vector<float> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  naive::Tensor tensor = naive::Vector(DType::kFloat32, flat);
  tensor.sizes = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())};
  tensor.strides = {tensor.sizes[1], 1};
  return tensor;
}

class QuantisationTest : public testing::TestWithParam<const Kernels*> {};

TEST_P(QuantisationTest, LosesWhatTheDefinitionsSay) {
  const struct {
    size_t rows, length;
    double spread;
    bool special;
  } cases[] = {{1, 1, 0, false}, {64, 64, 0, false}, {37, 80, 3, false}, {300, 7, 6, true}, {5, 1000, 12, true}};
  for (const auto& [count, length, spread, special] : cases) {
    SCOPED_TRACE(testing::Message() << count << " x " << length << " spread " << spread);
    const auto rows = RowsOf(count, length, spread, special);
    ExpectNear(Of(TensorOf(rows).view(), *GetParam()), Naive(rows));
  }
}

TEST_P(QuantisationTest, VerySmallAndVeryLargeNumbersKeepTheirPlace) {
  for (const double scale : {0x1p-140, 0x1p-110, 0x1p-30, 0x1p60, 0x1p124}) {
    SCOPED_TRACE(scale);
    auto rows = RowsOf(8, 32, 0, false);
    for (auto& row : rows) {
      for (float& x : row) x = static_cast<float>(std::clamp(x * scale, -3e38, 3e38));
    }
    const Quantisation actual = Of(TensorOf(rows).view(), *GetParam()), expected = Naive(rows);
    for (const size_t i : {0, 4, 5, 6}) {
      SCOPED_TRACE(Quantisation::kFormats[i]);
      EXPECT_EQ(actual.losses[i].zeroed, expected.losses[i].zeroed);
      EXPECT_NEAR(actual.losses[i].error, expected.losses[i].error, 1e-4 * expected.losses[i].error + 1e-6);  // floats
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, QuantisationTest,
                         testing::ValuesIn(SupportedKernels().begin(), SupportedKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(QuantisationTest, BlocksLieInTheLastDimensionHoweverMemoryLies) {
  const auto rows = RowsOf(48, 70, 4, false);
  const naive::Tensor straight = TensorOf(rows);
  std::vector<std::vector<float>> columns(70, std::vector<float>(48));
  for (size_t i = 0; i < 48; ++i) {
    for (size_t j = 0; j < 70; ++j) columns[j][i] = rows[i][j];
  }
  naive::Tensor turned = TensorOf(columns);
  std::swap(turned.sizes[0], turned.sizes[1]);
  std::swap(turned.strides[0], turned.strides[1]);
  ExpectNear(Of(turned.view()), Of(straight.view()));
}

TEST(QuantisationTest, NumbersOfAFormatLoseNothingInIt) {
  std::vector<float> numbers;
  for (const double each : NumbersOf("e4m3")) numbers.push_back(static_cast<float>(each));
  const Quantisation of = Of(naive::Vector(DType::kFloat32, numbers).view());
  EXPECT_EQ(of.losses[2].error, 0) << "448 is the largest, so the scale is 1";
  EXPECT_EQ(of.losses[2].zeroed, 0U);
  EXPECT_EQ(of.losses[0].error, 0);
  EXPECT_EQ(Of(naive::Vector(DType::kBFloat16, std::vector<uint16_t>{0x3f81, 0x4049, 0xc0ff}).view()).losses[0].error,
            0);
}

TEST(QuantisationTest, ZerosAndIntegersHaveNoError) {
  EXPECT_TRUE(std::isnan(Of(naive::Vector(DType::kFloat32, std::vector<float>{0, 0}).view()).losses[6].error));
  EXPECT_TRUE(std::isnan(Of(naive::Vector(DType::kInt32, std::vector<int32_t>{1, 2}).view()).losses[6].error));
}

}  // namespace
}  // namespace msprobe::stats
