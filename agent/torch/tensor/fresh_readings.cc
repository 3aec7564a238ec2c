#include "agent/torch/tensor/fresh_readings.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

namespace msprobe::capture {
namespace {

std::atomic<uint64_t> operators_begun{0};

std::unique_ptr<at::ObserverContext> CountOperator(const at::RecordFunction&) {
  operators_begun.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

size_t BytesOf(const stats::TensorView& view) {
  return static_cast<size_t>(view.element_count()) * stats::ElementSize(view.dtype);
}

bool IsDense(const stats::TensorView& view) {
  int64_t reach = 1;
  for (size_t i = 0; i < view.sizes.size(); ++i) reach += (view.sizes[i] - 1) * view.strides[i];
  return reach == view.element_count();
}

// A hash of words spread over the memory.
uint64_t SamplesOf(const stats::TensorView& view) {
  const auto* const bytes = static_cast<const char*>(view.data);
  const size_t last = BytesOf(view) - sizeof(uint64_t);
  uint64_t samples = 0;
  for (size_t i = 0; i < FreshReadings::kSamples; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + last * i / (FreshReadings::kSamples - 1), sizeof(word));
    samples = (samples ^ word) * 0x9E3779B97F4A7C15u;
    samples ^= samples >> 29;
  }
  return samples;
}

c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl();
}

uint64_t VersionOf(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

FreshReadings::FreshReadings() : handle_(at::addGlobalCallback(at::RecordFunctionCallback(&CountOperator))) {}

FreshReadings::~FreshReadings() { at::removeCallback(handle_); }

bool FreshReadings::Covers(const at::Tensor& tensor, const stats::TensorView& view) {
  static const c10::DeleterFnPtr kOwnDeleter = c10::GetDefaultCPUAllocator()->raw_deleter();
  return IsDense(view) && BytesOf(view) >= kSmallest && !tensor.is_inference() && at::isRecordFunctionEnabled() &&
         tensor.unsafeGetTensorImpl()->storage().data_ptr().get_deleter() == kOwnDeleter;
}

void FreshReadings::ForgetOlder() {
  const uint64_t begun = operators_begun.load(std::memory_order_relaxed);
  if (std::exchange(operators_, begun) != begun) readings_.clear();
}

bool FreshReadings::Recall(const at::Tensor& tensor, const stats::TensorView& view, core::Leaf* leaf) {
  if (!Covers(tensor, view)) return false;
  const absl::MutexLock lock(&mu_);
  ForgetOlder();
  if (readings_.empty()) return false;
  const RememberedStatistics::Key key = RememberedStatistics::KeyOf(view);
  const auto found =
      std::find_if(readings_.begin(), readings_.end(), [&](const Reading& each) { return each.key == key; });
  if (found == readings_.end()) return false;
  if (found->storage._unsafe_get_target() != StorageOf(tensor) || found->version != VersionOf(tensor) ||
      found->samples != SamplesOf(view)) {
    readings_.erase(found);
    return false;
  }
  *leaf = found->numbers;
  return true;
}

void FreshReadings::Keep(const at::Tensor& tensor, const stats::TensorView& view, const core::Leaf& leaf) {
  if (!Covers(tensor, view)) return;
  const absl::MutexLock lock(&mu_);
  ForgetOlder();
  if (readings_.size() >= kMost) return;
  readings_.push_back({.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
                           c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(StorageOf(tensor))),
                       .key = RememberedStatistics::KeyOf(view),
                       .version = VersionOf(tensor),
                       .samples = SamplesOf(view),
                       .numbers = leaf});
}

}  // namespace msprobe::capture
