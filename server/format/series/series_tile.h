#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::server {

// One point of a series of scalars.
struct SeriesPoint {
  uint32_t step = 0;
  double value = 0;
};

// Sorts points by step. Of points with one step the last stays.
void SortPoints(std::vector<SeriesPoint>& points);

// The bytes of a tile: some points of one series, in order of step, no two with one step.
//
//   version, 1 byte          1
//   flags, 1 byte            1: values are floats; 2: the distance of steps is constant; 4: values are deflated
//   count, varint
//   first step, varint; then either the distance, varint, or the distance of each point to the one before, varints
//   values                   each XORed with the bits of the one before, then the lowest bytes of all, the second
//                            lowest of all, and so on
//
// Floats hold the values only if each is the same double again, bit by bit. So every NaN comes back as it was.
std::string EncodeSeriesTile(std::span<const SeriesPoint> points);
// DataLoss: the bytes are no tile.
absl::StatusOr<std::vector<SeriesPoint>> DecodeSeriesTile(std::string_view bytes);

}  // namespace msprobe::server
