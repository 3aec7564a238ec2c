#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/checkpoint/weight_comparison.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// A tensor, or a shard of one, as one rank recorded it (agent/python/msprobe/pytorch/_weights.py).
struct RecordedWeight {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> offset;
  std::vector<int64_t> size;
  std::map<v1::DType, BlockDigests> digests;

  uint64_t elements() const;  // of the shard
};

// The weights of one step by name: of several recordings the last one. Empty: it has none. Records under these names
// that are none of ours are passed over.
absl::StatusOr<std::map<std::string, RecordedWeight>> WeightsIn(RecordSource& step);

// A tensor as the model has it, and the ranks that hold it, or a shard of it.
struct HeldWeight {
  DigestedWeight weight;
  std::set<size_t> ranks;  // numbers that the caller has for them
};

// Puts together what ranks hold under one name. What they hold otherwise than the first of them comes as further ones,
// put together with the shards that nobody holds otherwise. Empty: `recorded` is.
std::vector<HeldWeight> JoinRanks(const std::vector<std::pair<size_t, const RecordedWeight*>>& recorded);

}  // namespace msprobe::server
