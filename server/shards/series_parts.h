#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/shards/shards.pb.h"
#include "server/store/store.h"

namespace msprobe::server {

// This server's points of the series that are asked for: those of each session apart, long ones in several parts. Of
// one rank and series, parts come in the order in which their sessions began. `send` returns false to stop.
//
// NotFound: the run is not here. Cancelled: `send` stopped it.
absl::Status SeriesPartsHere(const Store& store, const shards::ReadSeriesRequest& request,
                             absl::FunctionRef<bool(const shards::SeriesPart& part)> send);

}  // namespace msprobe::server
