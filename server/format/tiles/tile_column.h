#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "server/format/tiles/byte_cursor.h"

namespace msprobe::server {

// Appends a column: one quantity over the passes of a tile. The first byte is the encoding; a column without values has
// no bytes.
//   0  constant: one zigzag varint
//   1  linear:   the first value, and the common difference, as zigzag varints modulo 2^64
//   2  plain:    a zigzag varint for each value
//   3  deltas:   a zigzag varint for each value, the difference to the previous value (the first: to 0)
void AppendIntegers(std::string& out, std::span<const uint64_t> values);
// Reads a whole column of `count` values and returns the one at `index` (0 if index is count or more).
uint64_t IntegerAt(ByteCursor& in, uint64_t count, uint64_t index);
// Reads all values of a column. `count` is at most the number of passes of a tile.
void ReadIntegers(ByteCursor& in, uint64_t count, std::vector<uint64_t>& values);

// Appends a column of numbers with their bytes in memory. The first byte is the encoding: 0 constant, 1 all values.
template <typename Number>
void AppendNumbers(std::string& out, std::span<const Number> values) {
  if (values.empty()) return;
  bool constant = true;
  for (const Number& value : values) {
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): a value is its bytes, also -0 and every NaN
    constant = constant && std::memcmp(&value, &values[0], sizeof(Number)) == 0;
  }
  out.push_back(constant ? 0 : 1);
  out.append(reinterpret_cast<const char*>(values.data()), sizeof(Number) * (constant ? 1 : values.size()));
}
template <typename Number>
Number NumberAt(ByteCursor& in, uint64_t count, uint64_t index) {
  Number value{};
  if (count == 0) return value;
  if (in.Byte() == 0) {
    const Number same = in.Fixed<Number>();
    return index < count ? same : value;
  }
  if (count > in.left()) count = in.left() + 1;  // the product below must not overflow
  const char* const bytes = in.Raw(sizeof(Number) * count);
  if (bytes != nullptr && index < count) std::memcpy(&value, bytes + index * sizeof(Number), sizeof(value));
  return value;
}

}  // namespace msprobe::server
