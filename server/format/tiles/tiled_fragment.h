#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/format/tiles/tile_reader.h"

namespace msprobe::server {

// The numbers of one fragment of a tile over all its passes, column by column. It leaves out zero counts, payloads and
// NonFinite, and what passes with one layout have in common (counts, parents, booleans, strings).
//
// One object reads one fragment after another and reuses its memory. Threads: one at a time.
class TiledFragment {
 public:
  // Every vector has one value for each pass, 0 if the pass has no value in the column.
  struct Leaf {
    std::vector<uint32_t> shape;  // index into TileReader::shapes
    std::vector<uint32_t> flags;
    // Whether any pass has a value in the columns that follow. If not, their content is undefined.
    bool has_narrow = false, has_wide = false, has_integers = false, has_crc32 = false, has_xor64 = false;
    std::array<std::vector<float>, 5> narrow;  // max, min, mean, norm, variance
    std::array<std::vector<double>, 5> wide;
    std::array<std::vector<uint64_t>, 2> extremes;  // of integer tensors, as bits
    std::array<std::vector<double>, 3> moments;     // of integer tensors: mean, norm, variance
    std::vector<uint32_t> crc32;
    std::vector<uint64_t> xor64;
  };

  // DataLoss: the tile contradicts itself.
  absl::Status Read(const TileReader& tile, uint32_t fragment);

  uint64_t structure() const { return structure_; }
  size_t leaves() const { return leaves_; }
  const Leaf& leaf(size_t index) const { return leaf_[index]; }
  // The scalar arguments in order; integers as bits.
  const std::vector<std::vector<uint64_t>>& integers() const { return integers_; }
  const std::vector<std::vector<double>>& floats() const { return floats_; }

 private:
  void ReadLeaf(ByteCursor in, const TileReader& tile, Leaf& leaf);

  uint64_t structure_ = 0;
  size_t leaves_ = 0;
  std::vector<Leaf> leaf_;  // the first leaves_ belong to the current fragment
  std::vector<std::vector<uint64_t>> integers_;
  std::vector<std::vector<double>> floats_;
  std::vector<uint32_t> taking_;  // passes with a value in the current column
  std::vector<uint64_t> scratch_;
  bool broken_ = false;
};

}  // namespace msprobe::server
