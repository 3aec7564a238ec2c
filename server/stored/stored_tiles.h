#pragma once

#include <string>

#include "server/analysis/table/tile_source.h"
#include "server/store/store.h"

namespace msprobe::server {

// The tiles of a store. Both arguments outlive it.
class StoredTiles final : public TileSource {
 public:
  StoredTiles(const Store* store, TableLayouts* layouts) : store_(store), layouts_(layouts) {}

  absl::StatusOr<v1::CaptureSettings> SettingsOf(const Session& session) const override;
  absl::Status ForEachSet(const Session& session,
                          absl::FunctionRef<absl::Status(uint32_t set, storage::TileSetRow row)> visit) const override;
  absl::Status ForEachTile(const Session& session, uint32_t set,
                           absl::FunctionRef<absl::Status(std::string_view tile)> visit) const override;
  absl::StatusOr<std::string> Tile(const TileKey& key) const override;
  absl::StatusOr<StepBlocks> Blocks(const StepKey& step) const override;
  absl::StatusOr<SharedStructure> Structure(uint32_t run, uint64_t id) const override;
  TableLayouts& layouts() const override { return *layouts_; }

 private:
  const Store* store_;
  TableLayouts* layouts_;
};

}  // namespace msprobe::server
