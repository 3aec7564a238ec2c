#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/exporter/export_formats.h"
#include "server/query/opened_source.h"

namespace msprobe::server {

// Adds steps to an export, in their order; a table is read while the one before it is written. golden: null, and the
// places of `pairs` are the target's alone. Processes that never had a rank are numbered (RankNumbers) among `pairs`.
// `tell` hears after each step how many are done, and says by its status whether to go on. Cancelled: `cancelled` says
// so.
absl::Status ExportSteps(const OpenedSource& target, const OpenedSource* golden, const std::vector<PlacePair>& pairs,
                         StepsExport& format, const std::function<bool()>& cancelled,
                         const std::function<absl::Status(size_t done)>& tell);

// The places of one side.
std::vector<PlacePair> PairsOf(const std::vector<StepTables::Place>& places);

// A step as an export takes it, but for its table or records.
ExportedStep ExportedPlace(const OpenedSource& source, const StepTables::Place& place, uint32_t rank);

}  // namespace msprobe::server
