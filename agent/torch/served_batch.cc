#include "agent/torch/served_batch.h"

#include <optional>

#include "absl/container/flat_hash_set.h"

namespace msprobe::capture {
namespace {

constexpr size_t kMostCounted = 4096;

// Positions in host memory, element by element without an operator of torch.
class HostPositions {
 public:
  static std::optional<HostPositions> Of(const at::Tensor& tensor) {
    if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || tensor.dim() < 1) return std::nullopt;
    if (tensor.scalar_type() != at::kLong && tensor.scalar_type() != at::kInt) return std::nullopt;
    const void* memory = tensor.unsafeGetTensorImpl()->data();
    if (memory == nullptr) return std::nullopt;
    return HostPositions(tensor, memory);
  }

  uint64_t at(int64_t index) const {
    const int64_t place = index * stride_;
    const int64_t value =
        wide_ ? static_cast<const int64_t*>(memory_)[place] : static_cast<const int32_t*>(memory_)[place];
    return value < 0 ? 0 : static_cast<uint64_t>(value);
  }

 private:
  HostPositions(const at::Tensor& tensor, const void* memory)
      : memory_(memory), stride_(tensor.strides().back()), wide_(tensor.scalar_type() == at::kLong) {}

  const void* memory_;
  int64_t stride_;
  bool wide_;
};

}  // namespace

void ServedBatch::Set(std::vector<Request> requests) {
  absl::MutexLock lock(&mu_);
  requests_ = std::move(requests);
  total_ = 0;
  for (const Request& request : requests_) total_ += request.second;
  if (next_.size() <= kMostCounted) return;
  absl::flat_hash_set<std::string> present;
  for (const Request& request : requests_) present.insert(request.first);
  absl::erase_if(next_, [&](const auto& entry) { return !present.contains(entry.first); });
}

void ServedBatch::NotePass(core::Session& session, uint32_t step, uint32_t token, const at::Tensor* positions) {
  absl::MutexLock lock(&mu_);
  if (requests_.empty()) return;
  std::optional<HostPositions> host;
  if (positions != nullptr && positions->dim() >= 1) {
    if (positions->sizes().back() < total_) return;
    host = HostPositions::Of(*positions);
  }
  int64_t row = 0;
  for (const auto& [id, tokens] : requests_) {
    core::Session::TokenSpan span;
    span.request = id;
    span.first_row = static_cast<uint64_t>(row);
    span.counted = !host.has_value();
    if (host) {
      span.first_position = host->at(row);
      span.last_position = host->at(row + tokens - 1);
    } else {
      uint64_t& next = next_[id];
      span.first_position = next;
      next += static_cast<uint64_t>(tokens);
      span.last_position = next - 1;
    }
    session.NoteTokens(step, token, span);
    row += tokens;
  }
}

}  // namespace msprobe::capture
