#include "server/format/series/series_tile.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "server/format/tiles/byte_cursor.h"

namespace msprobe::server {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kFloats = 1, kRegular = 2, kDeflated = 4;
constexpr uint64_t kMostPoints = uint64_t{1} << 24;
constexpr int kLevel = 6;

std::optional<uint32_t> FloatBits(double value) {
  const auto narrow = static_cast<float>(value);
  const auto wide = static_cast<double>(narrow);
  if (std::bit_cast<uint64_t>(wide) != std::bit_cast<uint64_t>(value)) return std::nullopt;
  return std::bit_cast<uint32_t>(narrow);
}

template <typename Bits>
std::string Planes(const std::vector<Bits>& values) {
  std::string planes(values.size() * sizeof(Bits), '\0');
  Bits before = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const Bits changed = values[i] ^ std::exchange(before, values[i]);
    for (size_t byte = 0; byte < sizeof(Bits); ++byte) {
      planes[byte * values.size() + i] = static_cast<char>(changed >> (8 * byte));
    }
  }
  return planes;
}

template <typename Bits>
std::vector<Bits> Values(std::string_view planes, size_t count) {
  std::vector<Bits> values(count);
  Bits before = 0;
  for (size_t i = 0; i < count; ++i) {
    Bits changed = 0;
    for (size_t byte = 0; byte < sizeof(Bits); ++byte) {
      changed |= static_cast<Bits>(static_cast<uint8_t>(planes[byte * count + i])) << (8 * byte);
    }
    values[i] = before ^= changed;
  }
  return values;
}

std::string Deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  const int result = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), kLevel);
  packed.resize(result == Z_OK ? size : 0);
  return packed;
}

absl::Status Damaged() { return absl::DataLossError("a tile of a series is damaged"); }

}  // namespace

void SortPoints(std::vector<SeriesPoint>& points) {
  const auto earlier = [](const SeriesPoint& a, const SeriesPoint& b) { return a.step < b.step; };
  if (!std::is_sorted(points.begin(), points.end(), earlier)) {
    std::stable_sort(points.begin(), points.end(), earlier);
  }
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i + 1 < points.size() && points[i + 1].step == points[i].step) continue;
    points[kept++] = points[i];
  }
  points.resize(kept);
}

std::string EncodeSeriesTile(std::span<const SeriesPoint> points) {
  bool regular = true, floats = true;
  const uint32_t distance = points.size() > 1 ? points[1].step - points[0].step : 1;
  for (size_t i = 1; i < points.size(); ++i) regular &= points[i].step - points[i - 1].step == distance;
  std::vector<uint32_t> narrow;
  std::vector<uint64_t> wide;
  for (const SeriesPoint& point : points) {
    const std::optional<uint32_t> bits = FloatBits(point.value);
    floats &= bits.has_value();
    narrow.push_back(bits.value_or(0));
    wide.push_back(std::bit_cast<uint64_t>(point.value));
  }
  std::string values = floats ? Planes(narrow) : Planes(wide);
  const std::string packed = Deflated(values);
  const bool deflated = !packed.empty() && packed.size() < values.size();

  std::string tile;
  tile.push_back(static_cast<char>(kVersion));
  tile.push_back(static_cast<char>((floats ? kFloats : 0) | (regular ? kRegular : 0) | (deflated ? kDeflated : 0)));
  AppendVarint(tile, points.size());
  AppendVarint(tile, points.empty() ? 0 : points[0].step);
  if (regular) {
    AppendVarint(tile, distance);
  } else {
    for (size_t i = 1; i < points.size(); ++i) AppendVarint(tile, points[i].step - points[i - 1].step);
  }
  return tile.append(deflated ? packed : values);
}

absl::StatusOr<std::vector<SeriesPoint>> DecodeSeriesTile(std::string_view bytes) {
  ByteCursor cursor(bytes);
  const uint8_t version = cursor.Byte();
  const uint8_t flags = cursor.Byte();
  const uint64_t count = cursor.Varint();
  uint64_t step = cursor.Varint();
  if (cursor.failed() || version != kVersion) return Damaged();
  const bool regular = (flags & kRegular) != 0;
  if (count > kMostPoints || (!regular && count > bytes.size())) return Damaged();
  const uint64_t distance = regular ? cursor.Varint() : 0;
  std::vector<SeriesPoint> points(count);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) step += regular ? distance : cursor.Varint();
    points[i].step = static_cast<uint32_t>(step);
  }
  if (cursor.failed() || step > UINT32_MAX) return Damaged();

  const bool floats = (flags & kFloats) != 0;
  const size_t size = count * (floats ? sizeof(uint32_t) : sizeof(uint64_t));
  const size_t left = cursor.left();
  std::string_view planes(cursor.Raw(left), left);
  std::string inflated;
  if ((flags & kDeflated) != 0) {
    inflated.resize(size);
    uLongf got = size;
    const int result = uncompress(reinterpret_cast<Bytef*>(inflated.data()), &got,
                                  reinterpret_cast<const Bytef*>(planes.data()), planes.size());
    if (result != Z_OK || got != size) return Damaged();
    planes = inflated;
  }
  if (planes.size() != size) return Damaged();
  if (floats) {
    const std::vector<uint32_t> values = Values<uint32_t>(planes, count);
    for (size_t i = 0; i < count; ++i) points[i].value = static_cast<double>(std::bit_cast<float>(values[i]));
  } else {
    const std::vector<uint64_t> values = Values<uint64_t>(planes, count);
    for (size_t i = 0; i < count; ++i) points[i].value = std::bit_cast<double>(values[i]);
  }
  return points;
}

}  // namespace msprobe::server
