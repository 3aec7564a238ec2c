#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "server/analysis/check/policy.h"
#include "server/format/checkpoint/logical_tensor.h"

namespace msprobe::server {

// How one tensor of a checkpoint differs from another's.
struct TensorDifference {
  enum class Kind {
    kEqual,    // dtype and every bit
    kClose,    // the policy passes it
    kDiffers,  // the policy does not
    kNan,      // the target has NaN or infinity where the golden tensor has a number, or another one
    kShape,    // other shapes: nothing is compared
  };

  Kind kind = Kind::kEqual;
  uint64_t different = 0;  // elements
  double l2 = 0;           // of the difference, over the elements that are finite on both sides
  double cosine = 1;
  double max_abs = 0;
  double max_rel = 0;
  uint64_t target_hash = 0;  // XXH3-64 of the elements, little-endian and row-major
  uint64_t golden_hash = 0;
  std::optional<Judgement> verdict = {};  // of kClose and kDiffers
};

// Reads both once, and what is equal before the first difference twice. Of two dtypes the coarser one is judged against
// the finer one, so that its rounding is not held against it; errors are then relative to the finer one.
// Errors: those of the files; Cancelled: `cancelled` said so.
absl::StatusOr<TensorDifference> Differ(const LogicalTensor& target, const LogicalTensor& golden, const Policy& policy,
                                        const std::function<bool()>& cancelled);

}  // namespace msprobe::server
