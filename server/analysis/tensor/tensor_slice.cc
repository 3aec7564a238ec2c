#include "server/analysis/tensor/tensor_slice.h"

#include <algorithm>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// As Python cuts a bound to what there is.
int64_t Bound(int64_t given, int64_t size) { return std::clamp(given < 0 ? given + size : given, int64_t{0}, size); }

}  // namespace

absl::StatusOr<SlicePlan> SlicePlan::Make(const std::vector<int64_t>& shape,
                                          const std::vector<DimensionSlice>& slices) {
  if (slices.size() > shape.size()) {
    return absl::InvalidArgumentError(
        Cat(slices.size(), " slices are given for a tensor of ", shape.size(), " dimensions"));
  }
  SlicePlan plan;
  plan.dimensions_.resize(shape.size());
  uint64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    plan.dimensions_[i].stride = stride;
    plan.dimensions_[i].size = static_cast<uint64_t>(shape[i]);
    stride *= static_cast<uint64_t>(shape[i]);
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    Dimension& dimension = plan.dimensions_[i];
    const DimensionSlice slice = i < slices.size() ? slices[i] : DimensionSlice();
    if (slice.step < 1) {
      return absl::InvalidArgumentError(Cat("slice step ", slice.step, " is not allowed: it must be 1 or more"));
    }
    if (slice.index) {
      const int64_t given = slice.start.value_or(0);
      const int64_t at = given < 0 ? given + shape[i] : given;
      if (at < 0 || at >= shape[i]) {
        return absl::OutOfRangeError(Cat("index ", given, " is outside of dimension ", i, ", which has ", shape[i]));
      }
      dimension.start = static_cast<uint64_t>(at);
      dimension.count = 1;
      continue;
    }
    const int64_t start = Bound(slice.start.value_or(0), shape[i]);
    const int64_t stop = Bound(slice.stop.value_or(shape[i]), shape[i]);
    dimension.start = static_cast<uint64_t>(start);
    dimension.step = static_cast<uint64_t>(slice.step);
    dimension.count = stop <= start ? 0 : static_cast<uint64_t>((stop - start + slice.step - 1) / slice.step);
    plan.shape_.push_back(static_cast<int64_t>(dimension.count));
  }
  return plan;
}

absl::Status SlicePlan::ForEachRun(absl::FunctionRef<absl::Status(uint64_t, uint64_t)> visit) const {
  // Dimensions from `inner` on are one run.
  size_t inner = dimensions_.size();
  uint64_t run = 1;
  while (inner > 0) {
    const Dimension& dimension = dimensions_[inner - 1];
    if (dimension.step != 1 && dimension.count > 1) break;
    --inner;
    run *= dimension.count;
    if (dimension.count != dimension.size) break;
  }
  uint64_t first = 0;
  for (const Dimension& dimension : dimensions_) {
    if (dimension.count == 0) return absl::OkStatus();
    first += dimension.start * dimension.stride;
  }
  std::vector<uint64_t> at(inner, 0);
  for (;;) {
    uint64_t offset = first;
    for (size_t i = 0; i < inner; ++i) offset += at[i] * dimensions_[i].step * dimensions_[i].stride;
    if (absl::Status status = visit(offset, run); !status.ok()) return status;
    size_t i = inner;
    while (i > 0 && ++at[i - 1] == dimensions_[i - 1].count) at[--i] = 0;
    if (i == 0) return absl::OkStatus();
  }
}

}  // namespace msprobe::server
