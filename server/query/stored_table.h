#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/analysis/table/table_layouts.h"
#include "server/analysis/table/table_source.h"
#include "server/store/block_source.h"

namespace msprobe::server {

// A step at rest as analysis sees it: what an export of it would say, with the extended statistics.
// What `blocks` came from outlives the table. DataLoss: what is stored does not fit together.
absl::StatusOr<std::unique_ptr<TableSource>> ReadStoredTable(std::unique_ptr<BlockSource> blocks,
                                                             const DumpReading& reading, TableLayouts& layouts);

}  // namespace msprobe::server
