#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/change_set.h"
#include "server/store/database.h"

namespace msprobe::server {

// Blocks of a step with their numbers, which are their order of arrival.
using NumberedBlocks = std::vector<std::pair<uint32_t, std::shared_ptr<v1::Block>>>;

// Adds the blocks of a step that are tiles, as they arrived.
absl::Status ReadTiledBlocks(const Database& database, const StepKey& key, NumberedBlocks& blocks);

// Adds what makes tiles forget the passes of a step: a mark in each set that holds some, and the deletion of sets in
// which no other pass is left.
absl::Status AddPassDeletion(const Database& database, const StepKey& key, ChangeSet& changes);

// NotFound: the set was deleted meanwhile.
absl::StatusOr<storage::TileSetRow> ReadTileSet(const Database& database, uint32_t run, uint32_t rank, uint32_t epoch,
                                                uint32_t set);

}  // namespace msprobe::server
