#include "server/format/series/series_tile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;

std::vector<SeriesPoint> Decoded(const std::string& tile) {
  auto points = DecodeSeriesTile(tile);
  EXPECT_TRUE(points.ok()) << points.status();
  return points.ok() ? *points : std::vector<SeriesPoint>();
}

void ExpectSame(const std::vector<SeriesPoint>& points) {
  const std::vector<SeriesPoint> back = Decoded(EncodeSeriesTile(points));
  ASSERT_EQ(back.size(), points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(back[i].step, points[i].step);
    EXPECT_EQ(std::bit_cast<uint64_t>(back[i].value), std::bit_cast<uint64_t>(points[i].value)) << i;
  }
}

// A loss: it falls, with noise.
std::vector<SeriesPoint> Loss(bool as_float) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(0, 0.02);
  std::vector<SeriesPoint> points;
  for (uint32_t step = 0; step < 256; ++step) {
    const double value = 2 + 8 * std::exp(-0.01 * step) + noise(random);
    points.push_back({1000 + step, as_float ? static_cast<double>(static_cast<float>(value)) : value});
  }
  return points;
}

TEST(SeriesTileTest, ComesBackBitByBit) {
  ExpectSame({});
  ExpectSame({{7, 1.5}});
  ExpectSame({{0, 0.0}, {10, -0.0}, {20, 1e-310}, {30, 1.0 / 3}});
  ExpectSame({{3, 1}, {4, 2}, {9, 3}, {4294967295, 4}});
  const double inf = std::numeric_limits<double>::infinity();
  ExpectSame({{0, inf}, {1, -inf}, {2, std::nan("")}, {3, std::bit_cast<double>(uint64_t{0xfff0000000000123})}});
  ExpectSame(Loss(true));
  ExpectSame(Loss(false));
}

TEST(SeriesTileTest, TakesFewBytesAPoint) {
  const auto bytes = [](const std::vector<SeriesPoint>& points) {
    return static_cast<double>(EncodeSeriesTile(points).size()) / static_cast<double>(points.size());
  };
  EXPECT_LT(bytes(Loss(true)), 4.0);
  EXPECT_LT(bytes(Loss(false)), 7.5);
  EXPECT_LT(bytes(std::vector<SeriesPoint>(Loss(true).size(), {1, 1e-4})), 0.3);
}

TEST(SeriesTileTest, SortsAndTheLaterOfOneStepStays) {
  std::vector<SeriesPoint> points = {{5, 1}, {3, 2}, {5, 3}, {4, 4}, {3, 5}};
  SortPoints(points);
  EXPECT_THAT(points, ElementsAre(FieldsAre(3, 5), FieldsAre(4, 4), FieldsAre(5, 3)));
}

TEST(SeriesTileTest, RefusesWhatIsNoTile) {
  const std::string tile = EncodeSeriesTile(Loss(false));
  for (size_t size = 0; size < tile.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeSeriesTile(tile.substr(0, size)).status())) << size;
  }
  std::string other = tile;
  other[0] = 2;
  EXPECT_TRUE(absl::IsDataLoss(DecodeSeriesTile(other).status()));
  EXPECT_TRUE(absl::IsDataLoss(DecodeSeriesTile(std::string("\1\2\xff\xff\xff\xff\x0f\0\1", 9)).status()));
}

}  // namespace
}  // namespace msprobe::server
