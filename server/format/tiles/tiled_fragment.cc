#include "server/format/tiles/tiled_fragment.h"

#include <algorithm>
#include <cstring>

#include "server/format/storage/block_columns.h"
#include "server/format/tiles/tile_column.h"

namespace msprobe::server {
namespace {

absl::Status Broken() { return absl::DataLossError("a tile does not hold together: a fragment"); }

// Spreads the values of a column over the passes that take it.
template <typename Number>
void Scatter(const std::vector<uint32_t>& taking, uint32_t passes, std::vector<Number>& values) {
  values.resize(passes, 0);
  if (taking.size() == passes) return;
  for (size_t i = taking.size(); i-- > 0;) {
    const Number value = values[i];
    values[i] = 0;
    values[taking[i]] = value;
  }
}

template <typename Number>
void ReadNumbers(ByteCursor& in, const std::vector<uint32_t>& taking, uint32_t passes, std::vector<Number>& values) {
  values.resize(passes);
  const size_t count = taking.size();
  const bool constant = count > 0 && in.Byte() == 0;
  const char* const bytes = in.Raw(sizeof(Number) * (constant ? 1 : count));
  if (bytes == nullptr) return;
  if (constant) {
    Number value;
    std::memcpy(&value, bytes, sizeof(value));
    std::fill_n(values.begin(), count, value);
  } else {
    std::memcpy(values.data(), bytes, count * sizeof(Number));
  }
  Scatter(taking, passes, values);
}

}  // namespace

void TiledFragment::ReadLeaf(ByteCursor in, const TileReader& tile, Leaf& leaf) {
  const uint32_t passes = tile.passes();
  const auto narrowed = [&](std::vector<uint32_t>& out, uint64_t limit) {
    ReadIntegers(in, passes, scratch_);
    out.resize(passes);
    for (uint32_t pass = 0; pass < passes; ++pass) {
      if (scratch_[pass] >= limit) broken_ = true;
      out[pass] = static_cast<uint32_t>(scratch_[pass]);
    }
  };
  narrowed(leaf.shape, tile.shapes().size());
  narrowed(leaf.flags, uint64_t{1} << 32);
  const auto taken = [&](auto takes) {
    taking_.clear();
    for (uint32_t pass = 0; pass < passes; ++pass) {
      if (takes(leaf.flags[pass])) taking_.push_back(pass);
    }
    return !taking_.empty();
  };
  const auto flagged = [&](uint32_t bit) { return taken([bit](uint32_t flags) { return (flags & bit) != 0; }); };
  const auto numbers = [&](auto& column) { ReadNumbers(in, taking_, passes, column); };
  leaf.has_narrow = taken(TakesNarrow);
  if (leaf.has_narrow) {
    for (std::vector<float>& column : leaf.narrow) numbers(column);
  }
  leaf.has_wide = taken(TakesWide);
  if (leaf.has_wide) {
    for (std::vector<double>& column : leaf.wide) numbers(column);
  }
  leaf.has_integers = taken(TakesInteger);
  if (leaf.has_integers) {
    for (std::vector<uint64_t>& column : leaf.extremes) {
      ReadIntegers(in, taking_.size(), column);
      Scatter(taking_, passes, column);
    }
    for (std::vector<double>& column : leaf.moments) numbers(column);
  }
  if (flagged(v1::LEAF_STATISTICS)) ReadIntegers(in, taking_.size(), scratch_);  // zero counts
  leaf.has_crc32 = flagged(v1::LEAF_CRC32);
  if (leaf.has_crc32) numbers(leaf.crc32);
  leaf.has_xor64 = flagged(v1::LEAF_XOR);
  if (leaf.has_xor64) numbers(leaf.xor64);
  broken_ = broken_ || in.failed();
}

absl::Status TiledFragment::Read(const TileReader& tile, uint32_t fragment) {
  const uint32_t passes = tile.passes();
  if (fragment >= tile.fragments()) return Broken();
  ByteCursor in(tile.section(fragment));
  const uint64_t structure = in.Varint();
  const uint64_t leaves = in.Varint();
  const uint64_t integers = in.Varint();
  const uint64_t floats = in.Varint();
  in.Varint();
  in.Varint();
  // Every leaf and every column has at least one byte.
  if (structure >= tile.structures().size() || std::max({leaves, integers, floats}) > in.left()) return Broken();
  broken_ = false;
  structure_ = tile.structures()[structure];
  for (int i = 0; i < 7; ++i) IntegerAt(in, passes, 0);
  leaves_ = leaves;
  if (leaf_.size() < leaves_) leaf_.resize(leaves_);
  for (size_t i = 0; i < leaves_; ++i) ReadLeaf(ByteCursor(in.Text()), tile, leaf_[i]);
  integers_.resize(integers);
  for (std::vector<uint64_t>& column : integers_) ReadIntegers(in, passes, column);
  floats_.resize(floats);
  taking_.resize(passes);  // all passes
  for (std::vector<double>& column : floats_) ReadNumbers(in, taking_, passes, column);
  return broken_ || in.failed() ? Broken() : absl::OkStatus();
}

}  // namespace msprobe::server
