#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/analysis/table/table_layout.h"
#include "server/analysis/table/table_layouts.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"

namespace msprobe::server {

// Tiles at rest, for analyses that read them without the rest of their steps.
// Threads: any.
class TileSource {
 public:
  // One session of one rank of a run.
  struct Session {
    uint32_t run = 0;
    uint32_t rank = 0;  // RankCode
    uint32_t epoch = 0;
    friend auto operator<=>(const Session&,
                            const Session&) = default;  // NOLINT(modernize-use-nullptr): it has no pointer
  };
  struct Step {
    StepKey key;
    uint32_t blocks = 0;  // StepRow.next_block: how many the step has
    Session session() const { return {key.run, key.rank, key.epoch}; }
  };

  virtual ~TileSource() = default;

  virtual absl::StatusOr<v1::CaptureSettings> SettingsOf(const Session& session) const = 0;
  // A session's sets of tiles, in order of their numbers. Stops at the first status that is not OK.
  virtual absl::Status ForEachSet(
      const Session& session, absl::FunctionRef<absl::Status(uint32_t set, storage::TileSetRow row)> visit) const = 0;
  // The tiles of a set, in order of fragments. Stops as above.
  virtual absl::Status ForEachTile(const Session& session, uint32_t set,
                                   absl::FunctionRef<absl::Status(std::string_view tile)> visit) const = 0;
  // NotFound: it was deleted.
  virtual absl::StatusOr<std::string> Tile(const TileKey& key) const = 0;
  // The whole step, whether it lies in tiles or in rows.
  virtual absl::StatusOr<StepBlocks> Blocks(const StepKey& step) const = 0;
  // NotFound: the run has none of that id. DataLoss: it is something else.
  virtual absl::StatusOr<SharedStructure> Structure(uint32_t run, uint64_t id) const = 0;
  // Layouts that were made before.
  virtual TableLayouts& layouts() const = 0;
};

}  // namespace msprobe::server
