#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/analysis/table/table_layouts.h"
#include "server/analysis/table/table_source.h"
#include "server/store/block_source.h"

namespace msprobe::server {

// The table of a stored step: the same values that its export has, with the extended statistics.
// The store or connection behind `blocks` outlives the table. DataLoss: the stored parts do not fit together.
absl::StatusOr<std::unique_ptr<TableSource>> ReadStoredTable(std::unique_ptr<BlockSource> blocks,
                                                             const DumpReading& reading, TableLayouts& layouts);

}  // namespace msprobe::server
