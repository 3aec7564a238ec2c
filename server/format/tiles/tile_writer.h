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

// The checked blocks of one pass, which is one (step, token) of one session, in order of arrival. Input of TileWriter.
class TilePass {
 public:
  // Borrows the blocks. InvalidArgument: see CheckBlock. DataLoss: see CheckDigests.
  static absl::StatusOr<TilePass> Make(std::vector<const v1::Block*> blocks, SummaryLookup structure);

  size_t fragments() const { return fragments_.size(); }
  uint64_t structure(size_t fragment) const;
  // A hash of the structures of all fragments in order. The passes of one set have the same.
  uint64_t signature() const { return signature_; }

 private:
  friend class TileWriter;
  struct Fragment {
    uint32_t block = 0;
    uint32_t index = 0;
  };
  std::vector<const v1::Block*> blocks_;
  std::vector<std::vector<FragmentColumns>> columns_;
  std::vector<std::vector<std::pair<uint32_t, int>>> non_finite_;  // for each block: (leaf, place), sorted
  std::vector<Fragment> fragments_;
  uint64_t signature_ = 0;
};

// Encodes one tile: the fragments [first, first + count) of every pass. docs/storage_format.md specifies the bytes.
// These fragments must have the same structures in all passes, and `structure` must know them.
std::string EncodeTile(std::span<const TilePass> passes, size_t first, size_t count, SummaryLookup structure);

}  // namespace msprobe::server
