#include "server/analysis/compare/joined_tensor.h"

#include <algorithm>
#include <string>

#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxVisited = size_t{1} << 20;

uint64_t Product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  uint64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= static_cast<uint64_t>(shape[i]);
  return product;
}

}  // namespace

JoinedTensor::JoinedTensor(std::vector<std::unique_ptr<TensorElements>> shards, size_t axis)
    : shards_(std::move(shards)), axis_(axis), description_(shards_.front()->description()) {
  description_.shape[axis_] = 0;
  for (const auto& shard : shards_) description_.shape[axis_] += shard->description().shape[axis_];
}

absl::Status JoinedTensor::Read(ContentVisitor visit) {
  const uint64_t outer = Product(description_.shape, 0, axis_);
  std::vector<std::string> contents(shards_.size());
  std::vector<uint64_t> blocks;  // bytes of a shard in one step of the outer dimensions
  for (size_t i = 0; i < shards_.size(); ++i) {
    absl::Status status = shards_[i]->Read([&](std::string_view chunk) {
      contents[i].append(chunk);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    const std::vector<int64_t>& shape = shards_[i]->description().shape;
    blocks.push_back(Product(shape, axis_, shape.size()) * DTypeSize(description_.dtype));
    if (contents[i].size() != blocks[i] * outer) {
      return absl::DataLossError(
          Cat("shard ", i, " has ", contents[i].size(), " bytes, its shape needs ", blocks[i] * outer));
    }
  }
  for (uint64_t at = 0; at < outer; ++at) {
    for (size_t i = 0; i < contents.size(); ++i) {
      std::string_view block = std::string_view(contents[i]).substr(at * blocks[i], blocks[i]);
      while (!block.empty()) {
        const std::string_view part = block.substr(0, kMaxVisited);
        if (absl::Status status = visit(part); !status.ok()) return status;
        block.remove_prefix(part.size());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
