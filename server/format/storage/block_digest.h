#pragma once

#include <vector>

#include "absl/status/status.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

// Takes the digest of every fragment again (RecordDigest) and compares it with Block.digest. The block must have passed
// CheckBlock, which gave `fragments`. Fragments without a digest are passed over: an import has none, nor had agents of
// earlier versions.
// DataLoss: a fragment says something else than when it was captured; names its record.
absl::Status CheckDigests(const v1::Block& block, const std::vector<FragmentColumns>& fragments,
                          SummaryLookup structure);

}  // namespace msprobe::server
