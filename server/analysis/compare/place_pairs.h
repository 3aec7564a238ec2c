#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/table/step_tables.h"

namespace msprobe::server {

// Which steps and ranks are asked about.
struct PlaceScope {
  std::vector<std::pair<uint32_t, uint32_t>> steps;  // first and last of each range, included; empty: all
  std::vector<std::pair<int, uint32_t>> ranks;       // as in StepTables::Place; empty: all

  bool Takes(const StepTables::Place& place) const;
};

// The places that `scope` takes, in order. NotFound: none; says what there is.
absl::StatusOr<std::vector<StepTables::Place>> PlacesIn(const StepTables& source, const PlaceScope& scope);

// A place that only one side has.
struct UnpairedPlace {
  bool in_target = false;
  StepTables::Place place;
};

struct PlacePair {
  StepTables::Place target;
  StepTables::Place golden;
};
// Pairs the places of two sides that `scope` takes, by step and rank; those without a partner go to `unpaired`.
// InvalidArgument: the two sides have no step and rank in common.
absl::StatusOr<std::vector<PlacePair>> PairPlaces(const StepTables& target, const StepTables& golden,
                                                  const PlaceScope& scope, std::vector<UnpairedPlace>& unpaired);

// A step of both sides, with the ranks that are compared together: one with one, or all ranks of a step where the
// sides have different numbers of ranks.
struct LayoutPair {
  std::vector<StepTables::Place> target;
  std::vector<StepTables::Place> golden;
  // The places under which answers stand.
  PlacePair shown() const { return {target.front(), golden.front()}; }
};
// Rank by rank, unless `across_layouts`. Errors as PairPlaces.
absl::StatusOr<std::vector<LayoutPair>> PairLayouts(const StepTables& target, const StepTables& golden,
                                                    const PlaceScope& scope, bool across_layouts,
                                                    std::vector<UnpairedPlace>& unpaired);

struct StepPair {
  std::unique_ptr<TableSource> target;
  std::unique_ptr<TableSource> golden;
};
// Reads both sides of a pair, side by side where `parallel`.
absl::StatusOr<StepPair> ReadPair(const StepTables& target, const StepTables& golden, const PlacePair& pair,
                                  const DumpReading& target_reading, const DumpReading& golden_reading,
                                  bool parallel = true);

// Reads all ranks of a pair, joined where there are several.
absl::StatusOr<StepPair> ReadLayouts(const StepTables& target, const StepTables& golden, const LayoutPair& pair,
                                     const DumpReading& reading, const CompareOptions& options, bool parallel = true);

}  // namespace msprobe::server
