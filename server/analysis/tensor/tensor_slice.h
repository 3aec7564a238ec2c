#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::server {

// One dimension of a part of a tensor, as Python slices it.
struct DimensionSlice {
  std::optional<int64_t> start;  // negative: from the end
  std::optional<int64_t> stop;   // not included
  int64_t step = 1;              // 1 or more
  bool index = false;            // start alone; the dimension is dropped
};

// Where the elements of a part lie in the whole.
class SlicePlan {
 public:
  // Dimensions after the last slice are whole. InvalidArgument: more slices than dimensions, a step below 1.
  // OutOfRange: an index outside of its dimension.
  static absl::StatusOr<SlicePlan> Make(const std::vector<int64_t>& shape, const std::vector<DimensionSlice>& slices);

  const std::vector<int64_t>& shape() const { return shape_; }  // of the part

  // Gives the runs of consecutive elements in the part's row-major order; their offsets grow.
  absl::Status ForEachRun(absl::FunctionRef<absl::Status(uint64_t offset, uint64_t count)> visit) const;

 private:
  struct Dimension {
    uint64_t start = 0;
    uint64_t count = 0;
    uint64_t step = 1;
    uint64_t stride = 1;  // elements
    uint64_t size = 0;    // of the whole tensor
  };

  std::vector<Dimension> dimensions_;
  std::vector<int64_t> shape_;
};

}  // namespace msprobe::server
