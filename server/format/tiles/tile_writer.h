#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

// One pass on its way into tiles: the blocks of one (step, token) of one session, in order of arrival, checked.
class TilePass {
 public:
  // The blocks are borrowed. InvalidArgument as CheckBlock, DataLoss as CheckDigests.
  static absl::StatusOr<TilePass> Make(std::vector<const v1::Block*> blocks, SummaryLookup structure);

  size_t fragments() const { return fragments_.size(); }
  uint64_t structure(size_t fragment) const;
  // Of the structures of all fragments, in order: passes of one set have the same.
  uint64_t signature() const { return signature_; }

 private:
  friend class TileWriter;
  struct Fragment {
    uint32_t block = 0;
    uint32_t index = 0;
  };
  std::vector<const v1::Block*> blocks_;
  std::vector<std::vector<FragmentColumns>> columns_;
  std::vector<std::vector<std::pair<uint32_t, int>>> non_finite_;  // of each block: (leaf, place), sorted
  std::vector<Fragment> fragments_;
  uint64_t signature_ = 0;
};

// The value of one tile: `count` fragments from `first` on, of every pass. docs/storage_format.md has the bytes.
// All passes have the same structures at these places, which the lookup knows.
std::string EncodeTile(std::span<const TilePass> passes, size_t first, size_t count, SummaryLookup structure);

}  // namespace msprobe::server
