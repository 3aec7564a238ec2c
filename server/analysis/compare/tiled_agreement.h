#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/analysis/compare/column_agreement.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/table/tile_source.h"

namespace msprobe::server {

// Tells from tiles which pairs of stored steps surely have no difference. Where two sets of tiles belong together, each
// tile is read once for all passes, and its columns are compared. A pair perhaps differs where a step is not wholly in
// tiles, where the two steps are laid out differently, or where a tile cannot be read.
//
// Threads: Agree from any after Make. The source and the options outlive it.
class TiledAgreement {
 public:
  struct Pair {
    TileSource::Step target;
    TileSource::Step golden;
  };
  // Pairs that are absent are never sure. Null: contents or names decide, which tiles do not show.
  static absl::StatusOr<std::unique_ptr<TiledAgreement>> Make(const TileSource& tiles,
                                                              const std::vector<std::optional<Pair>>& pairs,
                                                              const CompareOptions& options);

  // Whether the pair surely has no difference. The first call for a pair reads the sets that the pair is in.
  bool Agree(size_t pair);

 private:
  struct Set {
    TileSource::Session session;
    uint32_t number = 0;
    storage::TileSetRow row;
  };
  // One pass of a step.
  struct Piece {
    const Set* set = nullptr;
    uint32_t pass = 0;
    uint32_t first_block = 0;
  };
  struct Session {
    v1::CaptureSettings settings;
    std::vector<std::unique_ptr<Set>> sets;
    absl::flat_hash_map<uint32_t, std::vector<Piece>> steps;  // in order of blocks
  };
  // Two sets that belong together.
  struct Group {
    const Set* target = nullptr;
    const Set* golden = nullptr;
    ColumnAgreement::Settings settings;
    absl::Mutex mu;
    bool compared ABSL_GUARDED_BY(mu) = false;
    std::vector<ColumnAgreement::Pass> passes ABSL_GUARDED_BY(mu);  // constant once it is compared
  };

  TiledAgreement(const TileSource& tiles, const CompareOptions& options) : tiles_(tiles), options_(options) {}
  absl::StatusOr<const Session*> SessionOf(const TileSource::Session& key);
  const std::vector<Piece>* PiecesOf(const Session& session, const TileSource::Step& step) const;
  absl::Status Add(const Pair& pair, size_t index);
  absl::Status Compare(Group& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mu);

  const TileSource& tiles_;
  const CompareOptions& options_;
  std::map<TileSource::Session, std::unique_ptr<Session>> sessions_;
  std::map<std::pair<const Set*, const Set*>, std::unique_ptr<Group>> groups_;
  std::vector<std::vector<std::pair<Group*, size_t>>> passes_;  // of each pair: group, and which of its passes
};

}  // namespace msprobe::server
