#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "server/format/tiles/byte_cursor.h"

namespace msprobe::server {

// One quantity over the passes of a tile. The first byte says how it is kept; a column of no values has no bytes.
//   0  constant: one zigzag varint
//   1  linear:   the first, and the step to each next, as zigzag varints modulo 2^64
//   2  plain:    a zigzag varint each
//   3  deltas:   a zigzag varint each, the difference to the one before (the first: to 0)
void AppendIntegers(std::string& out, std::span<const uint64_t> values);
// Reads a column of `count` values to its end; gives the one at `index` (0 where index is count or more).
uint64_t IntegerAt(ByteCursor& in, uint64_t count, uint64_t index);
// The same, all of them. No more values than a tile has passes.
void ReadIntegers(ByteCursor& in, uint64_t count, std::vector<uint64_t>& values);

// The same of numbers as they are in memory: 0 constant, 1 all.
template <typename Number>
void AppendNumbers(std::string& out, std::span<const Number> values) {
  if (values.empty()) return;
  bool constant = true;
  for (const Number& value : values) constant = constant && std::memcmp(&value, &values[0], sizeof(Number)) == 0;
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
  if (count > in.left()) count = in.left() + 1;  // no product of an absurd count
  const char* const bytes = in.Raw(sizeof(Number) * count);
  if (bytes != nullptr && index < count) std::memcpy(&value, bytes + index * sizeof(Number), sizeof(value));
  return value;
}

}  // namespace msprobe::server
