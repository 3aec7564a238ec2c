#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "server/analysis/compare/elementwise.h"

namespace msprobe::server {

// A tensor whose shards are joined along one axis, in their order. All shards have the same dtype, and the same sizes
// along the other axes.
class JoinedTensor : public TensorElements {
 public:
  JoinedTensor(std::vector<std::unique_ptr<TensorElements>> shards, size_t axis);

  const TensorDescription& description() const override { return description_; }
  // Holds all shards in memory. DataLoss: a shard has fewer or more elements than its shape says.
  absl::Status Read(ContentVisitor visit) override;

 private:
  const std::vector<std::unique_ptr<TensorElements>> shards_;
  const size_t axis_;
  TensorDescription description_;
};

}  // namespace msprobe::server
