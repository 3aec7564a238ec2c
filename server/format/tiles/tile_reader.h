#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/tiles/byte_cursor.h"

namespace msprobe::server {

inline constexpr char kTileVersion = 1;
using TilePayloadHash = std::array<char, 16>;

// Builds blocks, one after another: columns, and tables in which each entry occurs once.
class BlockBuilder {
 public:
  void Begin(uint32_t step, uint32_t token);
  // Returns the block and leaves the builder empty.
  v1::Block Take();

 private:
  friend class TileReader;
  void Ordinal(uint64_t ordinal);
  void Thread(uint32_t thread);
  void Digest(uint32_t digest);
  void Edge(uint32_t kind);
  uint32_t Structure(uint64_t id);
  uint32_t Stack(uint64_t id);
  uint32_t Parent(std::string text);
  uint32_t Shape(const std::vector<int64_t>& dims);

  v1::Block block_;
  uint64_t serial_ = 0;  // unique for each block, so that a tile can tell that the places it remembers are stale
  uint64_t ordinal_ = 0;
  bool threads_ = false;
  bool digests_ = false;
  bool edges_ = false;
  absl::flat_hash_map<uint64_t, uint32_t> structures_, stacks_;
  absl::flat_hash_map<std::string, uint32_t> parents_;
  absl::flat_hash_map<std::string, uint32_t> shapes_;
};

// Reads one tile (EncodeTile), pass by pass or leaf by leaf. Borrows the bytes. The bytes are not trusted: a tile that
// contradicts itself is DataLoss.
// Threads: one at a time.
class TileReader {
 public:
  static absl::StatusOr<TileReader> Open(std::string_view bytes);

  uint32_t passes() const { return passes_; }
  uint32_t fragments() const { return static_cast<uint32_t>(sections_.size()); }

  // For TiledFragment: the bytes of a fragment, and the tables that its columns index.
  std::string_view section(uint32_t fragment) const { return sections_[fragment]; }
  const std::vector<uint64_t>& structures() const { return structures_; }
  const std::vector<std::vector<int64_t>>& shapes() const { return shapes_; }

  // Appends the fragments [first, first + count) of a pass.
  absl::Status AppendFragments(uint32_t first, uint32_t count, uint32_t pass, BlockBuilder& out);
  // Appends one leaf alone: only to the columns of leaves.
  absl::Status AppendLeaf(uint32_t fragment, uint32_t leaf, uint32_t pass, BlockBuilder& out);

 private:
  // For each entry of the tile's tables, its index in the block's table plus 1; 0: not in the block yet.
  struct Places {
    uint64_t serial = 0;
    std::vector<uint32_t> structures, stacks, shapes;
  };

  absl::Status AppendFragment(std::string_view section, uint32_t pass, BlockBuilder& out);
  absl::Status ReadLeaf(std::string_view bytes, uint32_t pass, BlockBuilder& out);
  absl::Status AppendShape(ByteCursor& in, uint32_t pass, BlockBuilder& out);
  // Reads the flags or edges of a leaf and sets `flags` to those of `pass`. True: all passes have the same; else flags_
  // has them.
  bool ReadFlags(ByteCursor& in, uint32_t pass, uint32_t& flags);
  void ReadNonFinite(ByteCursor& in, uint32_t pass, BlockBuilder& out);
  void ReadEdge(ByteCursor& in, uint32_t pass, BlockBuilder& out);
  Places& PlacesIn(const BlockBuilder& out);

  uint32_t passes_ = 0;
  std::vector<uint64_t> structures_, stacks_;
  std::vector<std::string_view> strings_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::string_view> sections_;
  Places places_;
  std::vector<uint32_t> flags_;  // the current leaf's, or its edges, by pass
};

}  // namespace msprobe::server
