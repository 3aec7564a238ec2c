#include "agent/torch/served_batch.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"

namespace msprobe::capture {
namespace {

constexpr size_t kMaxCounted = 4096;

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

// Where the elements begin in their memory, where that holds at least `total` of them; absent: it does not.
std::optional<int64_t> PlaceInBatch(const at::Tensor& positions, int64_t total) {
  const c10::TensorImpl& tensor = *positions.unsafeGetTensorImpl();
  if (positions.layout() != at::kStrided || !tensor.has_storage() || positions.strides().back() != 1) {
    return std::nullopt;
  }
  const auto element = static_cast<int64_t>(tensor.itemsize());
  if (static_cast<int64_t>(tensor.storage().nbytes()) < total * element) return std::nullopt;
  return tensor.storage_offset();
}

}  // namespace

void ServedBatch::Set(std::vector<Request> requests) {
  absl::MutexLock lock(&mu_);
  CountOn();
  requests_ = std::move(requests);
  total_ = 0;
  for (const Request& request : requests_) total_ += request.second;
  if (next_.size() <= kMaxCounted) return;
  absl::flat_hash_set<std::string> present;
  for (const Request& request : requests_) present.insert(request.first);
  absl::erase_if(next_, [&](const auto& entry) { return !present.contains(entry.first); });
}

void ServedBatch::CountOn() {
  if (microbatches_.empty()) return;
  for (const auto& [id, tokens] : requests_) next_[id] += static_cast<uint64_t>(tokens);
  microbatches_.clear();
}

std::optional<ServedBatch::Rows> ServedBatch::RowsOf(const at::Tensor* positions) {
  if (positions == nullptr || positions->dim() < 1 || positions->sizes().back() >= total_) return Rows{0, total_};
  const std::optional<int64_t> begin = PlaceInBatch(*positions, total_);
  if (!begin.has_value() || *begin >= total_) return std::nullopt;
  const Rows rows{*begin, std::min(*begin + positions->sizes().back(), total_)};
  for (const Rows& other : microbatches_) {
    if (rows.begin < other.end && other.begin < rows.end) return std::nullopt;
  }
  microbatches_.push_back(rows);
  return rows;
}

void ServedBatch::NotePass(core::Session& session, uint32_t step, uint32_t token, const at::Tensor* positions) {
  absl::MutexLock lock(&mu_);
  if (requests_.empty()) return;
  const std::optional<Rows> rows = RowsOf(positions);
  if (!rows.has_value()) return;
  const bool is_whole = rows->begin == 0 && rows->end == total_;
  const std::optional<HostPositions> host =
      positions != nullptr && positions->dim() >= 1 ? HostPositions::Of(*positions) : std::nullopt;
  int64_t first = 0;  // of the request, in the batch
  for (const auto& [id, tokens] : requests_) {
    const Rows own{std::max(first, rows->begin), std::min(first + tokens, rows->end)};
    if (own.begin < own.end) {
      core::Session::TokenSpan span;
      span.request = id;
      span.first_row = static_cast<uint64_t>(own.begin - rows->begin);
      span.counted = !host.has_value();
      if (host) {
        span.first_position = host->at(own.begin - rows->begin);
        span.last_position = host->at(own.end - 1 - rows->begin);
      } else {
        const uint64_t next = next_[id];
        span.first_position = next + static_cast<uint64_t>(own.begin - first);
        span.last_position = next + static_cast<uint64_t>(own.end - 1 - first);
      }
      session.NoteTokens(step, token, span);
    }
    if (!host && is_whole) next_[id] += static_cast<uint64_t>(tokens);
    first += tokens;
  }
}

}  // namespace msprobe::capture
