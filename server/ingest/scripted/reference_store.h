#pragma once

#include <vector>

#include "server/ingest/scripted/scripted_load.h"

namespace msprobe::server {

// For tests: the content of every reference data directory. It never changes: those of released formats hold it, under
// the name "golden".
inline constexpr uint64_t kReferenceBatches = 13;  // two whole steps of five batches, and three of an open one

inline std::vector<ScriptedLoad> ReferenceLoads() {
  std::vector<ScriptedLoad> loads;
  loads.reserve(2);
  for (uint32_t rank : {0u, 1u}) loads.emplace_back("golden", rank, 20'261'121 + rank);
  return loads;
}

// The directories named format_N_tiles: one rank whose steps are alike, so that all of them are tiles.
inline constexpr uint32_t kReferenceSteps = 20, kReferenceCalls = 3;
inline constexpr char kReferenceTilesRun[] = "tiles";
inline int ReferenceValue(uint32_t step, uint32_t call) { return static_cast<int>(1000 * call + step * step); }

}  // namespace msprobe::server
