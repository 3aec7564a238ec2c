#include "agent/torch/tensor/fresh_readings.h"

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

namespace msprobe::capture {
namespace {

std::atomic<uint64_t> operators_begun{0};

// Sorted. Where one of them copies, it is by another operator.
constexpr std::string_view kViews[] = {
    "aten::_reshape_alias", "aten::alias",   "aten::as_strided", "aten::detach",    "aten::expand", "aten::expand_as",
    "aten::flatten",        "aten::narrow",  "aten::permute",    "aten::reshape",   "aten::select", "aten::slice",
    "aten::split",          "aten::squeeze", "aten::t",          "aten::transpose", "aten::unbind", "aten::unflatten",
    "aten::unsqueeze",      "aten::view",    "aten::view_as",
};

bool MakesView(std::string_view name) { return std::binary_search(std::begin(kViews), std::end(kViews), name); }

// Nodes that torch generates have the number of an overload: AddmmBackward0.
bool IsOwnNode(std::string_view name) {
  return name.starts_with("torch::autograd::") ||
         (!name.empty() && std::isdigit(static_cast<uint8_t>(name.back())) != 0);
}

std::unique_ptr<at::ObserverContext> CountOperator(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const bool is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  const bool computes = is_node ? !IsOwnNode(name) : !MakesView(name) || torch::autograd::get_current_node() == nullptr;
  if (computes) operators_begun.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

// Views of the same bytes in the same order have the same key.
RememberedStatistics::Key KeyOf(const stats::TensorView& view) {
  RememberedStatistics::Key key{
      .data = view.data, .dtype = view.dtype, .conjugate = view.conjugate, .negative = view.negative, .dims = {}};
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t size = view.sizes[i], stride = view.strides[i];
    if (size == 1) continue;
    const size_t last = key.dims.size();
    if (last > 0 && key.dims[last - 1] == size * stride) {
      key.dims[last - 2] *= size;
      key.dims[last - 1] = stride;
    } else {
      key.dims.insert(key.dims.end(), {size, stride});
    }
  }
  return key;
}

bool IsParameter(const at::Tensor& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

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

std::optional<FreshReadings::Reading> FreshReadings::Take(Readings& readings, const RememberedStatistics::Key& key,
                                                          const at::Tensor& tensor, const stats::TensorView& view) {
  const auto found =
      std::find_if(readings.begin(), readings.end(), [&](const Reading& each) { return each.key == key; });
  if (found == readings.end()) return std::nullopt;
  Reading taken = std::move(*found);
  readings.erase(found);
  const bool holds = taken.storage._unsafe_get_target() == StorageOf(tensor) && taken.version == VersionOf(tensor) &&
                     taken.samples == SamplesOf(view);
  if (!holds) return std::nullopt;
  return taken;
}

std::optional<uint32_t> FreshReadings::Recall(const at::Tensor& tensor, const stats::TensorView& view) {
  if (!Covers(tensor, view)) return std::nullopt;
  const absl::MutexLock lock(&mu_);
  ForgetOlder();
  if (readings_.empty() && parameters_.empty()) return std::nullopt;
  const RememberedStatistics::Key key = KeyOf(view);
  if (std::optional<Reading> fresh = Take(readings_, key, tensor, view)) {
    const uint32_t checksum = fresh->checksum;
    readings_.push_back(*std::move(fresh));
    return checksum;
  }
  const std::optional<Reading> parameter = Take(parameters_, key, tensor, view);
  return parameter.has_value() ? std::optional(parameter->checksum) : std::nullopt;
}

void FreshReadings::Keep(const at::Tensor& tensor, const stats::TensorView& view, uint32_t checksum) {
  if (!Covers(tensor, view)) return;
  const absl::MutexLock lock(&mu_);
  ForgetOlder();
  Reading reading{.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
                      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(StorageOf(tensor))),
                  .key = KeyOf(view),
                  .version = VersionOf(tensor),
                  .samples = SamplesOf(view),
                  .checksum = checksum};
  if (IsParameter(tensor)) {
    if (parameters_.size() >= kMost) parameters_.erase(parameters_.begin());
    parameters_.push_back(reading);
  }
  if (readings_.size() < kMost) readings_.push_back(std::move(reading));
}

}  // namespace msprobe::capture
