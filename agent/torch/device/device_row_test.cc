#include "agent/torch/device/device_row.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace msprobe::capture {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a device would find in `values`, by the plainest means.
DevicePiece PieceOf(const std::vector<float>& values) {
  DevicePiece piece{.row = {}, .elements = static_cast<int64_t>(values.size())};
  DeviceRow& row = piece.row;
  row.max = -std::numeric_limits<float>::max();
  row.min = std::numeric_limits<float>::max();
  float largest = std::numeric_limits<float>::min();
  for (float value : values) {
    row.nan_count += std::isnan(value) ? 1 : 0;
    row.positive_inf_count += value == kInfinity ? 1 : 0;
    row.negative_inf_count += value == -kInfinity ? 1 : 0;
    row.zero_count += value == 0 ? 1 : 0;
    if (!std::isfinite(value)) continue;
    row.max = std::max(row.max, value);
    row.min = std::min(row.min, value);
    largest = std::max(largest, std::fabs(value));
  }
  row.scale = std::ldexp(1.0f, std::ilogb(largest));
  double sum = 0, squares = 0;
  for (float value : values) {
    const double scaled = std::isfinite(value) ? value / row.scale : 0;
    sum += scaled;
    squares += scaled * scaled;
  }
  const double n = static_cast<double>(values.size());
  row.sum = static_cast<float>(sum);
  row.variance = static_cast<float>(squares / n - sum / n * (sum / n));
  return piece;
}

stats::Statistics HostsOf(const std::vector<float>& values) {
  const int64_t size = static_cast<int64_t>(values.size()), stride = 1;
  return stats::ComputeStatistics(
      {.data = values.data(), .dtype = stats::DType::kFloat32, .sizes = {&size, 1}, .strides = {&stride, 1}});
}

void ExpectSame(const stats::Statistics& ours, const stats::Statistics& theirs) {
  const auto near = [](double a, double b) {
    if (std::isnan(b)) return std::isnan(a);
    return a == b || std::fabs(a - b) <= 1e-5 * std::fabs(b);
  };
  EXPECT_EQ(ours.computed, theirs.computed);
  EXPECT_TRUE(ours.max == theirs.max || (std::isnan(ours.max) && std::isnan(theirs.max)));
  EXPECT_TRUE(ours.min == theirs.min || (std::isnan(ours.min) && std::isnan(theirs.min)));
  EXPECT_PRED2(near, ours.mean, theirs.mean);
  EXPECT_PRED2(near, ours.norm, theirs.norm);
  EXPECT_PRED2(near, ours.variance, theirs.variance);
  EXPECT_EQ(ours.nan_count, theirs.nan_count);
  EXPECT_EQ(ours.positive_inf_count, theirs.positive_inf_count);
  EXPECT_EQ(ours.negative_inf_count, theirs.negative_inf_count);
  EXPECT_EQ(ours.zero_count, theirs.zero_count);
  EXPECT_EQ(ours.has_finite, theirs.has_finite);
  EXPECT_EQ(ours.finite_max, theirs.finite_max);
  EXPECT_EQ(ours.finite_min, theirs.finite_min);
  EXPECT_PRED2(near, ours.finite_mean, theirs.finite_mean);
  EXPECT_PRED2(near, ours.finite_norm, theirs.finite_norm);
}

TEST(DeviceRowTest, PiecesOfDifferentSizesAndScalesAreOneTensor) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.5f, 2.0f);
  std::vector<float> all;
  std::vector<DevicePiece> pieces;
  for (const auto& [count, scale] : {std::pair(1000, 1.0f), {1, 1e30f}, {77, 1e-30f}, {500, 1e4f}, {3, 0.0f}}) {
    std::vector<float> piece(count);
    for (float& value : piece) value = normal(random) * scale;
    pieces.push_back(PieceOf(piece));
    all.insert(all.end(), piece.begin(), piece.end());
  }
  ExpectSame(CombinePieces(pieces, DeviceRowKind::kFloating, false, 1), HostsOf(all));
}

TEST(DeviceRowTest, NonFiniteElementsOfAnyPieceShow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> kinds = {{1, 2, -3},   {nan, nan}, {kInfinity, -4},
                                                 {-kInfinity}, {0, 0},     {nan, kInfinity, -kInfinity, 5}};
  for (const std::vector<float>& first : kinds) {
    for (const std::vector<float>& second : kinds) {
      std::vector<float> both = first;
      both.insert(both.end(), second.begin(), second.end());
      const std::vector<DevicePiece> pieces = {PieceOf(first), PieceOf(second)};
      ExpectSame(CombinePieces(pieces, DeviceRowKind::kFloating, false, 1), HostsOf(both));
    }
  }
}

TEST(DeviceRowTest, TheLargestFloatsDoNotOverflow) {
  const std::vector<float> values(1000, std::numeric_limits<float>::max());
  const stats::Statistics found =
      CombinePieces(std::vector{PieceOf(values), PieceOf(values)}, DeviceRowKind::kFloating, false, 1);
  EXPECT_EQ(found.mean, std::numeric_limits<float>::max());
  EXPECT_NEAR(found.norm / (std::sqrt(2000.0) * std::numeric_limits<float>::max()), 1, 1e-6);
  EXPECT_EQ(found.variance, 0);
}

TEST(DeviceRowTest, IntegersKeepTheirExtremes) {
  DevicePiece piece = PieceOf({1, 2, 0});
  piece.row.integer_max = int64_t{1} << 62 | 1;
  piece.row.integer_min = -(int64_t{1} << 62) - 1;
  const stats::Statistics found = CombinePieces(std::vector{piece}, DeviceRowKind::kWideInteger, false, 1);
  EXPECT_TRUE(found.is_integer);
  EXPECT_EQ(found.integer_max, int64_t{1} << 62 | 1);
  EXPECT_EQ(found.integer_min, -(int64_t{1} << 62) - 1);
  EXPECT_EQ(found.zero_count, 1);
}

TEST(DeviceRowTest, ExpandedElementsCountAsOftenAsTheyAreSeen) {
  const std::vector<float> once = {3, 0, -4};
  std::vector<float> seen;
  for (int i = 0; i < 5; ++i) seen.insert(seen.end(), once.begin(), once.end());
  ExpectSame(CombinePieces(std::vector{PieceOf(once)}, DeviceRowKind::kFloating, false, 5), HostsOf(seen));
}

TEST(DeviceRowTest, BoolsAreExact) {
  std::vector<float> values(1'000'000, 1);
  values[7] = 0;
  const stats::Statistics found = CombinePieces(std::vector{PieceOf(values)}, DeviceRowKind::kNarrowInteger, true, 1);
  EXPECT_EQ(found.integer_max, 1);
  EXPECT_EQ(found.integer_min, 0);
  EXPECT_EQ(found.mean, 999'999 / 1e6);
  EXPECT_EQ(found.norm, std::sqrt(999'999.0));
}

}  // namespace
}  // namespace msprobe::capture
