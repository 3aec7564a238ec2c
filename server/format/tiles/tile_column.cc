#include "server/format/tiles/tile_column.h"

namespace msprobe::server {
namespace {

enum Mode : char { kConstant = 0, kLinear = 1, kPlain = 2, kDeltas = 3 };

size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

}  // namespace

void AppendIntegers(std::string& out, std::span<const uint64_t> values) {
  if (values.empty()) return;
  const uint64_t step = values.size() > 1 ? values[1] - values[0] : 0;
  bool linear = true;
  size_t plain_bytes = 0;
  size_t delta_bytes = 0;
  uint64_t last = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    linear = linear && (i == 0 || values[i] - values[i - 1] == step);
    plain_bytes += VarintBytes(ZigZag(values[i]));
    delta_bytes += VarintBytes(ZigZag(values[i] - last));
    last = values[i];
  }
  if (linear) {
    out.push_back(step == 0 ? kConstant : kLinear);
    AppendVarint(out, ZigZag(values[0]));
    if (step != 0) AppendVarint(out, ZigZag(step));
    return;
  }
  const bool deltas = delta_bytes < plain_bytes;
  out.push_back(deltas ? kDeltas : kPlain);
  last = 0;
  for (uint64_t value : values) {
    AppendVarint(out, ZigZag(deltas ? value - last : value));
    last = value;
  }
}

uint64_t IntegerAt(ByteCursor& in, uint64_t count, uint64_t index) {
  if (count == 0) return 0;
  const uint8_t mode = in.Byte();
  if (mode == kConstant || mode == kLinear) {
    const uint64_t first = UnZigZag(in.Varint());
    const uint64_t step = mode == kLinear ? UnZigZag(in.Varint()) : 0;
    return index < count ? first + step * index : 0;
  }
  uint64_t found = 0;
  uint64_t last = 0;
  for (uint64_t i = 0; i < count && !in.failed(); ++i) {
    const uint64_t value = UnZigZag(in.Varint());
    last = mode == kDeltas ? last + value : value;
    if (i == index) found = last;
  }
  return found;
}

void ReadIntegers(ByteCursor& in, uint64_t count, std::vector<uint64_t>& values) {
  values.resize(count);
  if (count == 0) return;
  const uint8_t mode = in.Byte();
  if (mode == kConstant || mode == kLinear) {
    const uint64_t first = UnZigZag(in.Varint());
    const uint64_t step = mode == kLinear ? UnZigZag(in.Varint()) : 0;
    for (uint64_t i = 0; i < count; ++i) values[i] = first + step * i;
    return;
  }
  uint64_t last = 0;
  for (uint64_t& value : values) {
    value = UnZigZag(in.Varint());
    if (mode == kDeltas) value += last;
    last = value;
  }
}

}  // namespace msprobe::server
