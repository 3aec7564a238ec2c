#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/table/table_source.h"
#include "server/analysis/table/tile_source.h"

namespace msprobe::server {

// The steps of a run or of a dump directory, each of which can be read as a table.
// Constant; threads: any.
class StepTables {
 public:
  // A step, and its rank as (Rank.kind, Rank.number).
  using Place = std::pair<uint32_t, std::pair<int, uint32_t>>;

  virtual ~StepTables() = default;

  // As the user called it: the run, or the path.
  virtual const std::string& name() const = 0;
  // In order of step, then rank (ranks before processes are not guaranteed).
  virtual const std::vector<Place>& places() const = 0;
  // `place` is one of places().
  virtual absl::StatusOr<std::unique_ptr<TableSource>> Read(const Place& place, const DumpReading& reading) const = 0;
  // Whether the step is known to hold NaN or infinity. False: it has none, or nobody counted.
  virtual bool HasNonFinite(const Place& place) const = 0;
  // Where tiles() has the step. Nothing: it is a file's, or another server's.
  virtual std::optional<TileSource::Step> FindStored(const Place& place) const = 0;
  // Lives as long as this. Null: FindStored finds nothing.
  virtual const TileSource* tiles() const = 0;
};

}  // namespace msprobe::server
