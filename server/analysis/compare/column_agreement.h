#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/analysis/compare/comparison.h"
#include "server/format/storage/structure_summary.h"
#include "server/format/tiles/tile_reader.h"
#include "server/format/tiles/tiled_fragment.h"

namespace msprobe::server {

// Finds the passes that surely agree, by comparing tiles of the two sides column by column. Two passes surely agree
// where JudgeRow would call none of their rows a difference. That needs passes of the same layout
// (storage::TileSetRow::Pass.layout) and sessions of the same settings. Contents are not read.
//
// One thread at a time.
class ColumnAgreement {
 public:
  // A pair of passes, by their numbers in the target's and in the golden side's set.
  struct Pass {
    uint32_t target = 0;
    uint32_t golden = 0;
    bool sure = true;  // no tile so far showed a difference
  };

  struct Settings {
    bool checksums_only = false;    // CompareMode::kChecksum
    bool statistics_only = false;   // CompareMode::kStatistics
    bool statistics_shown = false;  // without the mode "xor", which hides them
  };

  // The tolerances outlive it; they have no rules by name.
  ColumnAgreement(const Tolerances* tolerances, Settings settings) : tolerances_(*tolerances), settings_(settings) {}

  using Slots = absl::FunctionRef<absl::StatusOr<SharedStructure>(uint64_t structure)>;

  // Clears `sure` of passes that perhaps differ in these tiles. Not OK: the tiles do not fit together.
  absl::Status Compare(const TileReader& target, const TileReader& golden, Slots structure, std::vector<Pass>& passes);

 private:
  struct Leaf {
    Tolerance tolerance;
    bool summary = false;  // its statistics stand for it where checksums differ
  };

  absl::StatusOr<const std::vector<Leaf>*> LeavesOf(uint64_t structure, Slots lookup);
  void CompareLeaf(const Leaf& leaf, const TileReader& target, const TiledFragment::Leaf& a, const TileReader& golden,
                   const TiledFragment::Leaf& b, std::vector<Pass>& passes);
  template <typename Number>
  void CompareStatistics(const Leaf& leaf, const std::array<std::vector<Number>, 5>& a,
                         const std::array<std::vector<Number>, 5>& b, const std::vector<double>& roots,
                         std::vector<Pass>& passes) const;

  const Tolerances& tolerances_;
  const Settings settings_;
  absl::flat_hash_map<uint64_t, std::vector<Leaf>> leaves_;  // by structure
  TiledFragment target_;
  TiledFragment golden_;
  std::vector<double> roots_;  // of the number of elements, by pass
};

}  // namespace msprobe::server
