#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/analysis.pb.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/table/table_source.h"
#include "server/importer/dump_layout.h"
#include "server/query/analysis_context.h"
#include "server/query/run_view.h"
#include "server/store/store.h"

namespace msprobe::server {

// One side of a comparison: its steps, each of which can be read. Constant after Open; any thread.
class OpenedSource {
 public:
  // A step, and its rank as (Rank.kind, Rank.number).
  using Place = std::pair<uint32_t, std::pair<int, uint32_t>>;

  // NotFound names the run or the directory.
  // The context outlives the source.
  static absl::StatusOr<OpenedSource> Open(const v1::Source& source, const AnalysisContext& context);

  // In order of step, then rank (ranks before processes are not guaranteed).
  const std::vector<Place>& places() const { return places_; }
  absl::StatusOr<std::unique_ptr<TableSource>> Read(const Place& place, const DumpReading& reading) const;
  // Of a run: sessions that have neither ended nor been lost.
  uint32_t open_sessions() const { return view_ == nullptr ? 0 : view_->open_sessions(); }
  // Whether more of the step may come.
  bool IsOpen(const Place& place) const { return open_.contains(place); }
  // Of a run: where this server stores the step, and how many blocks it has. Null: of a directory, or another server's.
  struct Stored {
    StepKey key;
    uint32_t blocks = 0;
    const ShownStep* step = nullptr;  // of view_
  };
  // What its server counts of the step. Null: of a directory.
  const storage::StepRow* RowOf(const Place& place) const {
    const auto found = stored_.find(place);
    return found == stored_.end() ? nullptr : &found->second.step->row;
  }
  const Stored* FindStored(const Place& place) const {
    const auto found = stored_.find(place);
    return found == stored_.end() || found->second.step->peer != nullptr ? nullptr : &found->second;
  }

 private:
  const AnalysisContext* context_ = nullptr;
  std::shared_ptr<const RunView> view_;  // of a run
  std::map<Place, Stored> stored_;       // its steps
  std::set<Place> open_;                 // of these
  std::map<Place, DumpFiles> files_;     // of a directory
  std::vector<Place> places_;
};

v1::Rank RankOfPlace(const OpenedSource::Place& place);

// Those that `scope` takes, in order. NotFound: none; says what there is.
absl::StatusOr<std::vector<OpenedSource::Place>> PlacesIn(const OpenedSource& source, const v1::Scope& scope);

// Pairs the places of two sides that `scope` takes, by step and rank; what has no partner is in `unpaired`.
// InvalidArgument: the two sides have no step and rank in common.
struct PlacePair {
  OpenedSource::Place target;
  OpenedSource::Place golden;
};
absl::StatusOr<std::vector<PlacePair>> PairPlaces(const OpenedSource& target, const OpenedSource& golden,
                                                  const v1::Scope& scope, std::vector<v1::UnpairedStep>& unpaired);

// Steps of both sides, each with those of its ranks that are compared together: one with one, or all of a step where
// the sides have different numbers of ranks. Errors as PairPlaces.
struct LayoutPair {
  std::vector<OpenedSource::Place> target;
  std::vector<OpenedSource::Place> golden;
  // Under which answers stand.
  PlacePair shown() const { return {target.front(), golden.front()}; }
};
absl::StatusOr<std::vector<LayoutPair>> PairLayouts(const OpenedSource& target, const OpenedSource& golden,
                                                    const v1::Scope& scope, bool across_layouts,
                                                    std::vector<v1::UnpairedStep>& unpaired);

// Reads both sides of a pair, side by side where `parallel`.
struct StepPair {
  std::unique_ptr<TableSource> target;
  std::unique_ptr<TableSource> golden;
};
absl::StatusOr<StepPair> ReadPair(const OpenedSource& target, const OpenedSource& golden, const PlacePair& pair,
                                  const DumpReading& target_reading, const DumpReading& golden_reading,
                                  bool parallel = true);

// The same of all ranks of a pair, joined where there are several.
absl::StatusOr<StepPair> ReadLayouts(const OpenedSource& target, const OpenedSource& golden, const LayoutPair& pair,
                                     const DumpReading& reading, const ComparisonOptions& options,
                                     bool parallel = true);

}  // namespace msprobe::server
