#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/format/checkpoint/logical_tensor.h"

namespace msprobe::server {

// A digest by place (agent/core/weight_digest.h), one number for each block of rows.
using BlockDigests = std::vector<uint64_t>;

// Rows of a tensor: all dimensions but the last, flattened; of a vector its elements.
uint64_t DigestedRows(const std::vector<int64_t>& shape);
// The digest of the whole.
uint64_t WholeDigest(const BlockDigests& blocks);
// Whether every word is zero, but for a chance of 2^-64.
bool IsZero(const BlockDigests& blocks);

// Whether every value of `from` is rounded to nearest, ties to even, by a cast to `to`, as torch does it: floating
// dtypes of 16 to 64 bits.
bool CanCast(v1::DType from, v1::DType to);

// Of a checked tensor, read once, with its elements cast to `dtype`: the tensor's own, or CanCast.
// Errors: those of the files; Cancelled: `cancelled` said so.
absl::StatusOr<BlockDigests> DigestBlocks(const LogicalTensor& tensor, v1::DType dtype,
                                          const std::function<bool()>& cancelled);

}  // namespace msprobe::server
