#include "server/stored/stored_tiles.h"

#include <utility>

#include "server/format/cat.h"
#include "server/store/store.h"

namespace msprobe::server {

absl::StatusOr<v1::CaptureSettings> StoredTiles::SettingsOf(const Session& session) const {
  auto row = store_->catalogue().SessionOfEpoch(session.run, session.epoch);
  if (!row.ok()) return row.status();
  return row->hello().settings();
}

absl::Status StoredTiles::ForEachSet(
    const Session& session, absl::FunctionRef<absl::Status(uint32_t set, storage::TileSetRow row)> visit) const {
  std::string prefix = TileSetKey(session.run, session.rank, session.epoch, 0);
  prefix.resize(prefix.size() - sizeof(uint32_t));
  return store_->database().ForEach(Family::kMeta, prefix,
                                    [&](std::string_view key, std::string_view value) -> absl::Status {
                                      storage::TileSetRow row;
                                      if (absl::Status status = DecodeValue(value, row); !status.ok()) return status;
                                      return visit(ReadU32(key, prefix.size()), std::move(row));
                                    });
}

absl::Status StoredTiles::ForEachTile(const Session& session, uint32_t set,
                                      absl::FunctionRef<absl::Status(std::string_view tile)> visit) const {
  return store_->database().ForEach(Family::kTiles, TileKey::SetPrefix(session.run, session.rank, session.epoch, set),
                                    [&](std::string_view, std::string_view value) { return visit(value); });
}

absl::StatusOr<std::string> StoredTiles::Tile(const TileKey& key) const {
  auto bytes = store_->database().Get(Family::kTiles, key.Encode());
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) return absl::NotFoundError(Cat("tile ", key.ToString(), " was deleted"));
  return **std::move(bytes);
}

absl::StatusOr<StepBlocks> StoredTiles::Blocks(const StepKey& step) const { return store_->steps().ReadBlocks(step); }

absl::StatusOr<SharedStructure> StoredTiles::Structure(uint32_t run, uint64_t id) const {
  return store_->definitions().Structure(run, id);
}

}  // namespace msprobe::server
