#include "agent/torch/device/stream_reader.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <utility>

#include "agent/capture/reading/leaf_numbers.h"
#include "agent/core/str_cat.h"
#include "agent/stats/checksum.h"
#include "agent/stats/statistics.h"
#include "agent/torch/cuda/cuda_statistics.h"
#include "agent/torch/device/device_pieces.h"
#include "agent/torch/device/device_text.h"
#include "agent/torch/strings/torch_strings.h"
#include "agent/torch/torch_versions.h"

namespace msprobe::capture {
namespace {

constexpr size_t kSpareBatches = 4;

}  // namespace

void DeviceBatch::Settle() {
  const std::byte* const slab = slab_.host().data();
  for (const Entry& entry : entries_) {
    const DeviceRequest& request = entry.request;
    core::Leaf numbers;
    if (!entry.piece_elements.empty()) {
      SetNumbers(CombineRows(slab + entry.offset, entry.piece_elements, request.dtype, request.repeats), numbers);
    } else {
      const std::byte* const bytes = request.memory != nullptr ? request.memory->bytes().data() : slab + entry.offset;
      const stats::TensorView view{.data = bytes,
                                   .dtype = request.dtype,
                                   .sizes = request.sizes,
                                   .strides = request.strides,
                                   .conjugate = request.conjugate,
                                   .negative = request.negative};
      ReadNumbers(view, request.mode, request.sizes.empty(), numbers);
      if (request.payload != nullptr && request.payload != request.memory) {
        stats::CopyContiguous(view, request.payload->bytes().data());
      }
    }
    entry.reading->Came(numbers);
  }
  entries_.clear();
}

void DeviceBatch::Lose() {
  for (const Entry& entry : entries_) entry.reading->Lost();
  entries_.clear();
}

void DeviceBatch::Reset() {
  slab_.Reset();
  own_bytes_ = 0;
}

StreamReader::StreamReader(const c10::Stream& stream, Submitted submitted, std::function<void()> opened)
    : stream_(stream), submitted_(std::move(submitted)), opened_(std::move(opened)) {}

size_t StreamReader::Reserve(size_t bytes) {
  if (open_ != nullptr) {
    if (const std::optional<size_t> offset = open_->slab_.Reserve(bytes)) return *offset;
    Submit();
  }
  if (spare_.empty()) {
    open_ = std::make_unique<DeviceBatch>(stream_);
  } else {
    open_ = std::move(spare_.back());
    spare_.pop_back();
  }
  open_->opened_ = Clock::now();
  opened_();
  return *open_->slab_.Reserve(bytes);
}

std::shared_ptr<DeviceReading> StreamReader::Add(DeviceRequest request, size_t offset,
                                                 std::vector<int64_t> piece_elements) {
  auto reading = std::make_shared<DeviceReading>();
  request.tensor = at::Tensor();
  open_->entries_.push_back({reading, std::move(request), offset, std::move(piece_elements)});
  return reading;
}

std::shared_ptr<DeviceReading> StreamReader::ReadRaw(DeviceRequest request) {
  core::MutexLock lock(&mu_);
  const at::Tensor& tensor = request.tensor;
  const size_t offset = Reserve(tensor.nbytes());
  open_->slab_.View(offset, tensor.scalar_type(), tensor.sizes()).copy_(tensor, true);
  return Add(std::move(request), offset, {});
}

std::shared_ptr<DeviceReading> StreamReader::ReadRows(DeviceRequest request) {
  core::MutexLock lock(&mu_);
  if (std::shared_ptr<DeviceReading> reading = ReduceByKernel(request)) return reading;
  if (!reduces_) return nullptr;
  try {
    if (!statistics_.has_value()) statistics_.emplace(stream_.device());
    std::vector<at::Tensor> pieces;
    DeviceStatistics::ForEachPiece(request.tensor, [&](const at::Tensor& piece) { pieces.push_back(piece); });
    const size_t offset = Reserve(pieces.size() * kRowStride);
    std::vector<int64_t> piece_elements;
    for (const at::Tensor& piece : pieces) {
      const size_t row = offset + piece_elements.size() * kRowStride;
      statistics_->Launch(piece, open_->slab_.View(row, c10::kByte, {static_cast<int64_t>(sizeof(DeviceRow))}));
      piece_elements.push_back(piece.numel());
    }
    return Add(std::move(request), offset, std::move(piece_elements));
  } catch (const c10::Error& error) {
    reduces_ = false;
    log_.Warning(
        core::Cat("msprobe: ", DeviceText(stream_.device()),
                  " cannot compute statistics; large tensors are copied to the host instead: ", MessageOf(error)));
    return nullptr;
  }
}

std::shared_ptr<DeviceReading> StreamReader::ReduceByKernel(DeviceRequest& request) {
  const CudaKernels* const kernels = CudaKernelsOf(stream_.device());
  if (kernels == nullptr || !CudaKernelsTake(request.tensor)) return nullptr;
  const int64_t elements = request.tensor.numel();
  std::vector<int64_t> piece_elements = CudaKernels::PiecesOf(elements);
  const size_t bytes = piece_elements.size() * kRowStride;
  const size_t offset = Reserve(bytes);
  const at::Tensor rows = open_->slab_.View(offset, c10::kByte, {static_cast<int64_t>(bytes)});
  const absl::Status launched = kernels->Launch(request.dtype, request.tensor.const_data_ptr(), elements,
                                                rows.mutable_data_ptr(), NativeHandle(stream_));
  if (launched.ok()) return Add(std::move(request), offset, std::move(piece_elements));
  RefuseCudaKernels(stream_.device(), launched);
  return nullptr;
}

std::shared_ptr<DeviceReading> StreamReader::ReadInto(DeviceRequest request) {
  core::MutexLock lock(&mu_);
  const at::Tensor& tensor = request.tensor;
  Reserve(0);
  const size_t bytes = tensor.nbytes();
  const at::Tensor target = at::from_blob(request.memory->bytes().data(), tensor.sizes(),
                                          at::TensorOptions(tensor.scalar_type()).device(c10::kCPU));
  target.copy_(tensor, true);
  std::shared_ptr<DeviceReading> reading = Add(std::move(request), 0, {});
  open_->own_bytes_ += bytes;
  if (open_->own_bytes_ >= kOwnBytes) Submit();
  return reading;
}

bool StreamReader::reduces() const {
  core::MutexLock lock(&mu_);
  return reduces_;
}

void StreamReader::Submit() {
  try {
    const c10::StreamGuard on_stream(stream_);
    open_->slab_.Submit();
    submitted_(std::move(open_));
  } catch (const std::exception& error) {
    log_.Warning(core::Cat("msprobe: ", DeviceText(stream_.device()),
                           " failed; records go without its numbers: ", error.what()));
    if (open_ != nullptr) open_->Lose();
  }
  open_.reset();
}

bool StreamReader::Close(Clock::time_point before) noexcept {
  core::MutexLock lock(&mu_);
  // What is launched while a stream is captured goes into the graph.
  const bool captured = IsCapturing(stream_);
  if (open_ != nullptr && open_->opened_ <= before && !captured) Submit();
  return open_ != nullptr;
}

void StreamReader::Recycle(std::unique_ptr<DeviceBatch> batch) {
  batch->Reset();
  core::MutexLock lock(&mu_);
  if (spare_.size() < kSpareBatches) spare_.push_back(std::move(batch));
}

}  // namespace msprobe::capture
