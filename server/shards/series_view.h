#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/format/series/series_tile.h"
#include "server/shards/run_view.h"

namespace msprobe::server {

// The scalar series of a run over all of its shards, by name and RankCode, each in order of step. Of sessions of one
// rank that have the same step, the one that began last is shown. Of a tensor that ranks have shards of (ShardName) the
// whole is shown: WholeSeries.
using SeriesByName = std::map<std::pair<std::string, uint32_t>, std::vector<SeriesPoint>>;

struct SeriesQuestion {
  std::string run;
  std::string name_glob;  // empty: all
  uint32_t first_step = 0;
  uint32_t last_step = UINT32_MAX;  // included
};

// Errors as RunView::Open.
absl::StatusOr<SeriesByName> ReadSeriesOf(const Shards& shards, const SeriesQuestion& question);

}  // namespace msprobe::server
