#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/analysis/compare/column_agreement.h"
#include "server/analysis/compare/comparison.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// Which pairs of stored steps surely have no difference, told from their tiles: of every two sets of tiles that belong
// together each tile is read once, for all their passes, and column is held against column. Steps that are not wholly
// tiles, or that are laid out in another way on the other side, perhaps differ; what this cannot read does, too.
//
// Threads: Agree from any after Make. The context and the tolerances outlive it.
class TiledAgreement {
 public:
  struct Step {
    StepKey key;
    uint32_t blocks = 0;  // StepRow.next_block: how many the step has
  };
  struct Pair {
    Step target;
    Step golden;
  };
  // Pairs that are absent are never sure. Null: contents or names decide, which tiles do not show.
  static absl::StatusOr<std::unique_ptr<TiledAgreement>> Make(const AnalysisContext& context,
                                                              const std::vector<std::optional<Pair>>& pairs,
                                                              const ComparisonOptions& options);

  // Reads the sets that the pair is in, unless another pair was asked for before that is in them, too.
  bool Agree(size_t pair);

 private:
  using SessionKey = std::tuple<uint32_t, uint32_t, uint32_t>;  // run, rank, epoch
  struct Set {
    SessionKey session;
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
    absl::flat_hash_map<uint32_t, std::vector<Piece>> steps;  // in order of blocks; empty: not to be told from tiles
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

  TiledAgreement(const AnalysisContext& context, const ComparisonOptions& options)
      : context_(context), options_(options) {}
  absl::StatusOr<const Session*> SessionOf(const StepKey& key);
  const std::vector<Piece>* PiecesOf(const Session& session, const Step& step) const;
  absl::Status Add(const Pair& pair, size_t index);
  absl::Status Compare(Group& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mu);

  const AnalysisContext& context_;
  const ComparisonOptions& options_;
  std::map<SessionKey, std::unique_ptr<Session>> sessions_;
  std::map<std::pair<const Set*, const Set*>, std::unique_ptr<Group>> groups_;
  std::vector<std::vector<std::pair<Group*, size_t>>> passes_;  // of each pair: group, and which of its passes
};

}  // namespace msprobe::server
