#pragma once

#include <vector>

#include "absl/status/status.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

// Computes the digest of every fragment (RecordDigest) and compares it with Block.digest. The block must have passed
// CheckBlock, which returned `fragments`. Fragments without a digest are skipped; they come from imports and from
// agents of earlier versions. DataLoss: a fragment is not what was captured; the message names its record.
absl::Status CheckDigests(const v1::Block& block, const std::vector<FragmentColumns>& fragments,
                          SummaryLookup structure);

}  // namespace msprobe::server
