#include "agent/capture/reading/memory_reader.h"

#include <algorithm>
#include <optional>

#include "agent/capture/reading/leaf_numbers.h"
#include "agent/core/content_hash.h"
#include "agent/stats/checksum.h"
#include "agent/stats/statistics.h"

namespace msprobe::capture {
namespace {

using stats::DType;

bool IsWide(uint8_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kComplex128:
      return true;
    default:
      return false;
  }
}

size_t BytesOf(const stats::TensorView& view) {
  return static_cast<size_t>(view.element_count()) * stats::ElementSize(view.dtype);
}

}  // namespace

MemoryReader::MemoryReader(const core::Config& config, core::Session* session, CallSampler* sampler,
                           bool with_distribution)
    : mode_(config.summary_mode),
      slice_(config.slice),
      high_precision_(config.precision_high),
      waits_(!config.bench_path.empty()),
      has_rows_(!config.request_id.empty()),
      with_distribution_(with_distribution),
      session_(session),
      sampler_(sampler),
      threads_(config.reading_threads) {}

bool MemoryReader::KeepsDoubles(uint8_t dtype) const { return high_precision_ || IsWide(dtype); }

int64_t MemoryReader::Cut(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                          absl::InlinedVector<int64_t, 6>& shape) const {
  int64_t offset = 0;
  const auto cut = [&](const core::SliceRule& rule) {
    if (rule.dim >= static_cast<int64_t>(shape.size())) return;
    int64_t& size = shape[rule.dim];
    if (rule.size && *rule.size != sizes[rule.dim]) return;
    // As Python slices: negative bounds count from the end, all are clamped.
    const auto clamp = [size](int64_t bound) { return std::clamp<int64_t>(bound < 0 ? bound + size : bound, 0, size); };
    const int64_t begin = clamp(rule.begin);
    const int64_t end = std::max(begin, rule.end ? clamp(*rule.end) : size);
    offset += begin * strides[rule.dim];
    size = end - begin;
  };
  for (const core::SliceRule& rule : slice_) cut(rule);
  if (has_rows_) {
    if (const std::optional<core::SliceRule> rule = rows_.rule()) cut(*rule);
  }
  return offset;
}

void MemoryReader::Measure(const stats::TensorView& view, core::Leaf& leaf, stats::Distribution* distribution) const {
  bytes_read_.fetch_add(BytesOf(view), std::memory_order_relaxed);
  if (with_distribution_ && distribution != nullptr) {
    return SetNumbers(stats::ComputeStatistics(view, nullptr, distribution), leaf);
  }
  ReadNumbers(view, mode_, view.sizes.empty(), leaf, &threads_);
}

void MemoryReader::MeasureNothing(core::Leaf& leaf) const {
  if (mode_ == core::SummaryMode::kMd5) leaf.crc32 = 0;
}

std::shared_ptr<core::Payload> MemoryReader::CopyBytes(const stats::TensorView& view) const {
  std::shared_ptr<core::Payload> payload = session_->AllocatePayload(BytesOf(view));
  if (payload == nullptr || BytesOf(view) == 0) return payload;
  stats::CopyContiguous(view, payload->bytes().data());
  // Here the copy is still in this core's cache; the sender would fetch it from memory.
  payload->name()->Set(core::PayloadHash(payload->bytes()));
  return payload;
}

void MemoryReader::Read(const stats::TensorView& view, bool save, TensorReading& reading) const {
  reading.leaf.is_wide = KeepsDoubles(reading.dtype);
  reading.shape.assign(view.sizes.begin(), view.sizes.end());
  const int64_t offset = Cut(view.sizes, view.strides, reading.shape);
  stats::TensorView part = view;
  part.sizes = reading.shape;
  if (part.element_count() == 0) {
    MeasureNothing(reading.leaf);
  } else {
    part.data = static_cast<const char*>(view.data) + offset * static_cast<int64_t>(stats::ElementSize(view.dtype));
    Measure(part, reading.leaf, &reading.distribution);
  }
  if (save && Keeps(BytesOf(part))) reading.leaf.payload = CopyBytes(part);
}

void MemoryReader::ReadArray(const void* data, uint8_t dtype, std::span<const int64_t> shape,
                             std::span<const int64_t> strides, bool save, TensorReading& reading) const {
  reading.dtype = dtype;
  reading.leaf.is_wide = IsWide(dtype);
  const stats::TensorView view{.data = data, .dtype = static_cast<DType>(dtype), .sizes = shape, .strides = strides};
  if (view.element_count() > 0) SetNumbers(stats::ComputeStatistics(view, &threads_), reading.leaf);
  if (save) reading.leaf.payload = CopyBytes(view);
}

}  // namespace msprobe::capture
