#include "server/store/tiles/tiled_passes.h"

#include <algorithm>
#include <map>

#include "server/format/cat.h"
#include "server/format/tiles/tile_reader.h"

namespace msprobe::server {
namespace {

absl::Status NotWhole(const StepKey& key, uint32_t set) {
  return absl::DataLossError(Cat("set ", set, " of the tiles of ", key.ToString(), " is not whole"));
}

// Makes the blocks of one pass again, tile after tile.
class PassReading {
 public:
  PassReading(const StepKey& key, uint32_t set, const storage::TileSetRow& row, uint32_t pass, NumberedBlocks& blocks)
      : key_(key), set_(set), row_(row), pass_(pass), blocks_(blocks) {}

  absl::Status Run(const Database& database) {
    if (pass_ >= static_cast<uint32_t>(row_.passes_size())) return NotWhole(key_, set_);
    if (Pass().blocks_size() != Pass().fragments_size()) return NotWhole(key_, set_);
    Begin();
    absl::Status status = database.ForEach(Family::kTiles, TileKey::SetPrefix(key_.run, key_.rank, key_.epoch, set_),
                                           [&](std::string_view, std::string_view value) { return AddTile(value); });
    if (!status.ok()) return status;
    return tiles_ == row_.tile_fragments_size() && block_ == Pass().blocks_size() ? absl::OkStatus()
                                                                                  : NotWhole(key_, set_);
  }

 private:
  const storage::TileSetRow::Pass& Pass() const { return row_.passes(static_cast<int>(pass_)); }

  void Begin() {
    // An empty block has no fragment that would end it.
    while (block_ < Pass().blocks_size()) {
      builder_.Begin(Pass().step(), Pass().token());
      left_ = Pass().fragments(block_);
      if (left_ > 0) return;
      End();
    }
  }
  void End() { blocks_.emplace_back(Pass().blocks(block_++), std::make_shared<v1::Block>(builder_.Take())); }

  absl::Status AddTile(std::string_view bytes) {
    auto tile = TileReader::Open(bytes);
    if (!tile.ok()) return tile.status();
    if (tiles_ >= row_.tile_fragments_size() || tile->fragments() != row_.tile_fragments(tiles_++)) {
      return NotWhole(key_, set_);
    }
    for (uint32_t at = 0; at < tile->fragments();) {
      if (block_ >= Pass().blocks_size()) return NotWhole(key_, set_);
      const uint32_t count = std::min(left_, tile->fragments() - at);
      if (absl::Status status = tile->AppendFragments(at, count, pass_, builder_); !status.ok()) return status;
      at += count;
      left_ -= count;
      if (left_ > 0) continue;
      End();
      Begin();
    }
    return absl::OkStatus();
  }

  const StepKey& key_;
  const uint32_t set_;
  const storage::TileSetRow& row_;
  const uint32_t pass_;
  NumberedBlocks& blocks_;
  BlockBuilder builder_;
  int tiles_ = 0;
  int block_ = 0;
  uint32_t left_ = 0;  // fragments that the block lacks
};

}  // namespace

absl::StatusOr<storage::TileSetRow> ReadTileSet(const Database& database, uint32_t run, uint32_t rank, uint32_t epoch,
                                                uint32_t set) {
  auto row = database.Find<storage::TileSetRow>(TileSetKey(run, rank, epoch, set));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat("run ", run, " has no set ", set, " of tiles: it was deleted"));
  return **row;
}

absl::Status ReadTiledBlocks(const Database& database, const StepKey& key, NumberedBlocks& blocks) {
  auto tiled = database.Find<storage::TiledRow>(key.Encode(MetaSpace::kTiled));
  if (!tiled.ok() || !tiled->has_value()) return tiled.status();
  for (const storage::TiledRow::Piece& piece : (*tiled)->pieces()) {
    auto row = ReadTileSet(database, key.run, key.rank, key.epoch, piece.set());
    if (!row.ok()) return row.status();
    absl::Status status = PassReading(key, piece.set(), *row, piece.pass(), blocks).Run(database);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AddPassDeletion(const Database& database, const StepKey& key, ChangeSet& changes) {
  auto tiled = database.Find<storage::TiledRow>(key.Encode(MetaSpace::kTiled));
  if (!tiled.ok() || !tiled->has_value()) return tiled.status();
  std::map<uint32_t, storage::TileSetRow> sets;
  for (const storage::TiledRow::Piece& piece : (*tiled)->pieces()) {
    if (!sets.contains(piece.set())) {
      auto row = ReadTileSet(database, key.run, key.rank, key.epoch, piece.set());
      if (absl::IsNotFound(row.status())) continue;
      if (!row.ok()) return row.status();
      sets[piece.set()] = *std::move(row);
    }
    storage::TileSetRow& row = sets[piece.set()];
    if (piece.pass() >= static_cast<uint32_t>(row.passes_size())) return NotWhole(key, piece.set());
    row.mutable_passes(static_cast<int>(piece.pass()))->set_forgotten(true);
  }
  for (const auto& [set, row] : sets) {
    bool any = false;
    for (const storage::TileSetRow::Pass& pass : row.passes()) any = any || !pass.forgotten();
    const std::string set_key = TileSetKey(key.run, key.rank, key.epoch, set);
    if (any) {
      changes.PutMeta(set_key, row);
    } else {
      changes.Delete(Family::kMeta, set_key);
      changes.DeletePrefix(Family::kTiles, TileKey::SetPrefix(key.run, key.rank, key.epoch, set));
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
